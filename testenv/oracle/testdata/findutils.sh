# find and xargs: thousands of directories, command lines of all lengths, many at a time.
set -e
mkdir -p d/a d/b
i=0; while [ $i -lt 60 ]; do i=$((i + 1)); mkdir -p d/$((i % 7)); echo $i >"d/$((i % 7))/file $i"; done
find / -xdev -name '*.so*' -type f >libraries 2>/dev/null || true
find d -type f -print0 | xargs -0 -P 4 -n 5 grep -l 1 >hits || true
find d -type f -exec sha1sum {} + | sort >sums
find d -name 'file 1*' -exec sh -c 'cat "$1" >"$1.copy"' _ {} \;
find d -name '*.copy' -delete
find /usr/share/zoneinfo -type f -print | xargs -s 60000 ls -d >/dev/null
find /usr/share/zoneinfo/America -type f -print | xargs cat >/dev/null
find . -newer d -fprint newer && find d -empty -execdir echo {} \; && xargs -a sums -L 10 echo >/dev/null
find /proc/self /none -maxdepth 1 >/dev/null 2>&1 || true
echo ok
