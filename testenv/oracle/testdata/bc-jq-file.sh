# bc, jq and file.
set -e
echo 'define f(n) { if (n < 2) return 1; return n * f(n - 1); }' >lib.bc
echo 'f(20); scale = 30; 4 * a(1)' | bc -l lib.bc; echo 1 | bc none 2>/dev/null </dev/null || true
i=0; while [ $i -lt 30 ]; do i=$((i + 1)); echo "{\"n\": $i, \"s\": \"x$i\"}"; done >data.json
jq -s 'map(select(.n > 27).s)' -c data.json; jq -r --slurpfile d data.json -n '$d | length'
echo 'def double: . * 2;' >m.jq; jq -L . 'import "m" as m; .n | m::double' data.json | tail -n 1; jq . none 2>/dev/null || true
echo 'def f: .n;' >.jq; jq -n 'include "none"; 1' 2>/dev/null || jq f data.json | head -n 1
file -b /bin/sh data.json /etc/localtime /dev/null /none >types; wc -l <types; gzip -k data.json && file -z data.json.gz >/dev/null
printf '0 string MAGIC found it\n' >magic; echo MAGIC >x; file -m magic x; find /usr/bin -type f | head -n 40 | file -f - >/dev/null
echo ok
