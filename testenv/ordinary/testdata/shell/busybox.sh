# BusyBox, statically linked.
set -eu
[ "$(busybox seq 100 | busybox grep 7 | busybox sort -rn | busybox head -n1)" = 97 ]
[ "$(busybox printf abc | busybox gzip | busybox gunzip)" = abc ]
busybox mkdir -p d/e && busybox find d -type d | busybox wc -l | busybox grep -q 2
[ "$(busybox whoami)" = agent ]
busybox httpd -f -p 127.0.0.1:8080 -h /scratch &
echo page > page
for _ in $(busybox seq 50); do busybox wget -qO- http://127.0.0.1:8080/page && break; busybox sleep 0.1; done | busybox grep -q page
kill $!
echo ok
