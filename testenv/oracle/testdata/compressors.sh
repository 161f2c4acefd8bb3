# gzip, bzip2, xz, zstd and pigz; with threads where they have some.
set -e
seq 300000 >n
for c in gzip bzip2 "xz -T2 --block-size=256KiB -1" "zstd -q -T2 --rm" "pigz -p 2"; do
	cp n m; $c m; f=$(ls m.*); ${c%% *} -dc "$f" | cmp - n; ${c%% *} -t "$f"; rm -f m m.*
done
gzip -k n && zcat n.gz | head -n 1 && zgrep -c 99 n.gz && gzip -l n.gz >/dev/null && zdiff n n.gz
xz -k n && xzgrep -m 1 5 n.xz && xz -l n.xz >/dev/null && unxz -c n.xz | tail -n 1
bzip2 -k n && bzcat n.bz2 | sed -n 7p; echo damaged >>n.bz2; bzip2 -t n.bz2 2>/dev/null || true
zstd -q --train /usr/share/zoneinfo/Europe/* -o dictionary 2>/dev/null && zstd -q -D dictionary n -o d.zst || true
gzip none 2>/dev/null || true; gzip -k n 2>/dev/null </dev/null || true; xz n.xz 2>/dev/null || true
echo ok
