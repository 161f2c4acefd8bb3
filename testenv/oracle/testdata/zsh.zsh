# Zsh: its globs, multiple redirections, temporary files of =(), its own sockets.
set -e
print -l one two three >a >b
cmp a b
wc -l =(sort /etc/passwd) >/dev/null
print -r -- /usr/bin/*(.) | tr ' ' '\n' >>c
[[ -s c ]]
zmodload zsh/net/tcp zsh/files zsh/system zsh/mapfile
ztcp 127.0.0.1 9 2>/dev/null || true
ztcp -l 7001 && listener=$REPLY
ztcp 127.0.0.1 7001 && client=$REPLY
ztcp -a $listener && server=$REPLY
print hello >&$client && read -r word <&$server && [[ $word == hello ]]
ztcp -c
mv a d && ln -s d e && cat e <(print x) && rm -f d e
sysopen -w -o creat,trunc -u 5 opened && print y >&5
[[ $mapfile[b] == *two* ]]
(sleep 0.1; exit 3) & wait $! || [[ $? == 3 ]]
print ok
