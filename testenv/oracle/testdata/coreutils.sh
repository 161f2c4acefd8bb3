# GNU coreutils: files made, copied, linked, sorted, split, removed; opens that fail; a
# process that is left running.
set -e
mkdir -p a/b
seq 2000 | tee a/numbers | sort -R | sort -n -o a/sorted -T /tmp -S 1M -
cmp a/numbers a/sorted
split -l 300 a/numbers a/b/part-
cat a/b/part-* | sha256sum | tee a/sum >/dev/null
cp -a a copy && cp --reflink=never a/numbers copy/again && mv copy/again copy/moved
ln -s ../numbers a/b/link && ln a/numbers a/hard
head -n 1 a/b/link && tail -c 5 a/hard && wc -l <a/sorted
dd if=a/numbers of=a/blocks bs=100 count=7 conv=notrunc status=none
truncate -s 3 a/blocks && shred -u a/blocks
paste a/numbers a/sorted | join - a/numbers 2>/dev/null | tac | cut -c1-3 | uniq -c | nl | fold -w 20 >a/mixed
touch -d 2020-01-01 a/old && chmod 400 a/old && install -m 600 a/old a/installed
stat -c %s a/old && du -s a >/dev/null && ls -lR / >/dev/null 2>&1 || true
cat a/none a /root/x 2>/dev/null || true
echo x 2>/dev/null >/etc/passwd || true
mkfifo a/fifo && { cat a/fifo & echo through >a/fifo; wait; }
mktemp -d >/dev/null && timeout 5 env -i /bin/date -r a/old +%Y
rm -rf copy a
sleep 300 &
echo ok
