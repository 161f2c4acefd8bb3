# Pipelines, here-documents and the usual tools, in a POSIX shell.
set -eu
same() { [ "$2" = "$3" ] || { echo "$1: got '$2', want '$3'"; exit 1; }; }

same pipeline "$(seq 1 100 | grep 7 | sort -rn | head -n 3 | tr '\n' ' ')" "97 87 79 "
same here-document "$(cat <<EOF | sed 's/a/b/g' | awk '{ s += $2 } END { print $1, s }'
a 1
a 2
EOF
)" "b 3"
same early-exit "$(yes | head -n 2 | wc -l)" 2
same xargs "$(seq 10 | xargs -n 3 -P 4 echo | wc -l)" 4
mkdir -p d/e "d/with space"
touch d/e/1 d/e/2 "d/with space/3"
same find "$(find d -type f -print0 | xargs -0 -n1 basename | sort | tr '\n' ' ')" "1 2 3 "
same exec "$(find d -name 1 -exec stat -c %s {} \;)" 0
same join "$(printf '1 a\n2 b\n' > l; printf '1 x\n2 y\n' > r; join l r | cut -d' ' -f3 | paste -sd+)" "x+y"
same unicode "$(printf 'größe\n日本\n' | wc -m)" 9
same date "$(TZ=Asia/Tokyo date -d @0 +%H:%M)" 09:00
same sum "$(printf x | sha256sum | cut -c1-8)" 2d711642
same base64 "$(printf hello | base64 | base64 -d)" hello
same tar "$(tar cz d | tar tz | wc -l)" 6
same gzip "$(printf abc | gzip | gzip -dc)" abc
same od "$(printf A | od -An -tx1 | tr -d ' ')" 41
same job "$(sleep 0.1 & wait $!; echo $?)" 0
same trap "$(sh -c 'trap "echo caught" TERM; kill -TERM $$; echo after' | tr '\n' ' ')" "caught after "
same timeout "$(timeout 0.2 sleep 5 || echo $?)" 124
same subshell "$( (cd /tmp; pwd); pwd )" "/tmp
/scratch"
mkfifo pipe
(echo through > pipe) & same fifo "$(cat pipe)" through
same devices "$( (echo a > /dev/stderr) 2> /dev/null; echo b | cat /dev/stdin; echo c > /dev/null)" b
echo d > /dev/stdout
head -c 3000000 /dev/urandom > big
same size "$(wc -c < big)" 3000000
split -n 3 big part.
same split "$(cat part.* | cmp - big && echo same)" same
same sort-big "$(seq 200000 | sort -R | sort -n | tail -n 1)" 200000
same mktemp "$(mktemp | cut -c1-5)" /tmp/
same identity "$(id -un):$(whoami):$HOME:$(hostname 2>/dev/null || cat /etc/hostname)" agent:agent:/scratch:box
cp -a d copy && mv copy moved && ln -s moved link && rm -r d
same limits "$(ulimit -c)" 0
printf '#!/bin/sh\necho own program "$@"\n' > own && chmod +x own
same own "$(./own 1 2)" "own program 1 2"
seq 3 > /outputs/numbers.txt
same df "$(df --output=target /scratch | tail -n 1)" /scratch
echo ok
