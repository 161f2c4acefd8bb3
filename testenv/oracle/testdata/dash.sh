# The shell itself: redirections in all forms, subshells, here-documents, traps.
set -e
n=0
while [ $n -lt 40 ]; do n=$((n + 1)); echo $n >>log; done
exec 3<log 4>copy 5<>both
while read -r line <&3; do echo "$line" >&4; done
echo both >&5
exec 3<&- 4>&- 5>&-
(cd /tmp && cat <<X >here && read -r word <here && [ "$word" = "$n" ])
$n
X
set -C
if echo no >log; then exit 1; fi 2>/dev/null
echo yes >|log
set +C
trap 'echo trapped >trap' USR1
kill -USR1 $$
[ "$(cat trap)" = trapped ]
for i in 1 2 3 4 5; do (exec cat log >/dev/null) & done
wait
(. /nowhere/profile) 2>/dev/null || true
command -v none || ./log 2>/dev/null || [ $? -eq 126 ]
printf '#! /bin/sh -e\necho script "$@" >>scripts\n' >script
chmod +x script && ./script a 'b c' && PATH=$PWD:$PATH script d
printf 'echo plain "$@" >>scripts\n' >plain && chmod +x plain && ./plain e
printf '#!%s/script with two\n' "$PWD" >outer && chmod +x outer && ./outer f
cat scripts
echo ok
