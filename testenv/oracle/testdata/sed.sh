# sed: in place, with backups, reading and writing further files.
set -e
seq 100 >n; cp n m
sed -i.bak -e '/5$/w fives' -e 's/^1/one/' n m
sed -n -e '1r /etc/hostname' -e '2R m' -e '3w /dev/stdout' -e '4,6p' n
sed -i --follow-symlinks '1d' n 2>/dev/null; ln -s n l; sed -i --follow-symlinks '$d' l
sed -s -n '$p;1F' n m fives; sed -n 'p' none 2>/dev/null || true
sed '1e echo from a command' n | head -n 2
sed -i x /etc/passwd 2>/dev/null || true
printf 's/a/b/\nw written\n' >script && echo aaa | sed -f script && cat written
echo ok
