# rsync: three processes, temporary names that are renamed, and a server on loopback.
set -e
mkdir -p s/x/y; for i in $(seq 40); do seq $i >"s/x/f$i"; done; ln -s x/f1 s/l
rsync -a s/ d/ && rsync -a s/ d/ && diff -r s d
echo more >>s/x/f7; rm s/x/f9; rsync -ac --delete --backup --suffix=.old s/ d/ && cat d/x/f7 | tail -n 1
rsync -a --inplace --no-whole-file s/x/f40 d/x/ && rsync -a --link-dest=../d s/ linked/
rsync -a none d/ 2>/dev/null || true; rsync -a s/ /etc/s 2>/dev/null || true
printf 'use chroot = no\nport = 8730\naddress = 127.0.0.1\n[m]\npath = /scratch/s\nread only = no\n' >conf
rsync --daemon --no-detach --config=conf --log-file=log & server=$!
for i in 1 2 3 4 5 6 7 8 9; do rsync rsync://127.0.0.1:8730/m/ >list 2>/dev/null && break; sleep 0.2; done
rsync -a rsync://127.0.0.1:8730/m/ got/ && diff -r s got && kill $server; wait $server || true
rsync rsync://192.0.2.1/m 2>/dev/null || true
echo ok
