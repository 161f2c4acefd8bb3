# Bash: process substitution, a coprocess, files of its own making, /dev/tcp and /dev/udp.
set -e
diff <(sort /etc/passwd) <(sort /etc/passwd | cat)
coproc bc_ { while read -r a b; do echo $((a * b)); done; }
echo 6 7 >&"${bc_[1]}"
read -r answer <&"${bc_[0]}"
[[ $answer == 42 ]]
mapfile -t lines </etc/group
printf '%s\n' "${lines[@]}" >groups
[[ $(<groups) == "$(</etc/group)" ]]
cat <<<"$answer" >/dev/stdout
for f in /usr/share/doc/*; do [[ -e $f/copyright ]] && break; done
exec {fd}>"spaces and
lines"
echo x >&$fd
exec {fd}>&-
(exec 3<>/dev/tcp/127.0.0.1/9) 2>/dev/null || true
(exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null || true
(echo x >/dev/udp/192.0.2.1/53) 2>/dev/null || true
(echo x >/dev/udp/::1/9) 2>/dev/null || true
(exec 3<>/dev/tcp/localhost/7) 2>/dev/null || true
(exec 3<>/dev/tcp/no.such.example/7) 2>/dev/null || true
(exec -a another /bin/true)
echo {a..z} | xargs -n 3 >/dev/stderr
echo ok
