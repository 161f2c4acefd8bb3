# zip and unzip.
set -e
mkdir -p z/a; seq 3000 >z/n; echo b >z/a/b; ln -s n z/l
zip -qr -y one.zip z && zip -q one.zip /etc/passwd && zip -qd one.zip etc/passwd && unzip -l one.zip >/dev/null
mkdir o && unzip -q one.zip -d o && diff -r z o/z && unzip -p one.zip z/a/b
echo changed >z/a/b && zip -qf one.zip z/a/b && unzip -qo one.zip 'z/a/*' -d o && cat o/z/a/b
zip -q -s 64k -r split.zip /usr/share/zoneinfo/Europe 2>/dev/null && zip -q -s 0 split.zip --out joined.zip && unzip -tq joined.zip
seq 5 | zip -q - - >piped.zip; unzip -qp piped.zip; unzip none 2>/dev/null || zip -q x.zip none >/dev/null || true
echo ok
