# tar: through every compressor, with links, sparse files and a volume that is appended to.
set -e
mkdir -p t/deep/er; seq 5000 >t/n; ln -s n t/l; ln t/n t/hard; truncate -s 1M t/sparse; mkfifo t/fifo
long=t/$(printf 'x%.0s' $(seq 200)); echo long >"$long"
for c in gzip bzip2 xz zstd; do tar -cf t.$c --use-compress-program=$c t; mkdir o.$c; tar -xf t.$c -C o.$c; done
tar -cSf s.tar t && tar -rf s.tar /etc/passwd 2>/dev/null && tar -uf s.tar t && tar -tvf s.tar >list
tar -czf incremental.tgz -g snapshot t && echo new >t/new && tar -czf second.tgz -g snapshot t
tar -xf s.tar --to-command='cat >/dev/null' && tar -df s.tar t || true
tar -cf - t | (mkdir piped && cd piped && tar -xpf -) && cmp t/n piped/t/n
tar -xf none.tar 2>/dev/null || tar -xzf s.tar 2>/dev/null || true
tar --exclude='*er' -cf e.tar t none 2>/dev/null || true
echo ok
