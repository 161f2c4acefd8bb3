# wget: recursive from a server on loopback; and what it can't reach.
mkdir -p site/d; for i in 1 2 3 4; do echo "<a href=\"d/p$i.html\">$i</a>" >>site/index.html; echo $i >site/d/p$i.html; done
busybox httpd -p 8080 -h /scratch/site
wget -q -r -l 2 --tries=10 --retry-connrefused --waitretry=1 http://127.0.0.1:8080/index.html && find 127.0.0.1:8080 -type f | wc -l
wget -q -N -P again http://127.0.0.1:8080/d/p1.html ; wget -q -c -O p http://localhost:8080/d/p2.html && cat p
wget -q -t 1 -T 2 http://192.0.2.1/ ; wget -q -t 1 http://no.such.example/ ; wget -q -t 1 http://127.0.0.1:9/
wget -q -O /none/x http://127.0.0.1:8080/ ; wget -q -i none ; wget -q -t 1 -b -o log http://127.0.0.1:8080/none
echo ok
