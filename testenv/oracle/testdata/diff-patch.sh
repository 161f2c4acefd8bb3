# diff, diff3, sdiff, cmp and patch.
set -e
mkdir old; seq 200 >old/a; seq 50 >old/b; cp -r old new
sed -i 's/^1/x/;50d' new/a; rm new/b; echo added >new/c
diff -ruN old new >change.patch || [ $? -eq 1 ]
cp -r old work && patch -s -p1 -d work <change.patch && diff -r new work
patch -s -R -p1 -d work <change.patch && diff -r old work
sed -i 's/^150$/conflict/' work/a && patch -s -p1 -b -d work <change.patch || true
ls work; cat work/*.rej 2>/dev/null || true
diff3 -m old/a new/a work/a >merged || true
cmp old/a new/a >/dev/null || sdiff -s old/a new/a >/dev/null || true
diff old none 2>/dev/null || true
patch -p9 <change.patch >/dev/null 2>&1 </dev/null || true
echo ok
