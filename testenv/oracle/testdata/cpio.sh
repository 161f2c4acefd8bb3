# cpio: out, in, and pass-through.
set -e
mkdir -p s/x; for i in $(seq 30); do echo $i >s/x/$i; done; ln -s x/1 s/l
find s | cpio -o -H newc --quiet >a.cpio
mkdir o && (cd o && cpio -id --quiet <../a.cpio) && diff -r s o/s
find s -depth | cpio -pdm --quiet p && diff -r s p/s
find s | cpio -o -H ustar --quiet -O u.tar && tar -tf u.tar >/dev/null && cpio -it --quiet -I a.cpio >list
(cd o && cpio -i --quiet <../a.cpio 2>/dev/null) || true
cpio -i --quiet -I none 2>/dev/null || true
echo ok
