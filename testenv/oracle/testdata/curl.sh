# curl: a closed port, an address outside, names that nobody knows, files, and a server.
echo hello >f
curl -s http://127.0.0.1:9/ ; curl -s http://localhost:9/ ; curl -s -6 'http://[::1]:9/'
curl -s --connect-timeout 3 http://192.0.2.1/ ; curl -s --connect-timeout 3 'http://[2001:db8::1]:81/'
curl -s --connect-timeout 3 http://no.such.example/
curl -s --parallel http://192.0.2.1:81/ http://192.0.2.1:82/ http://127.0.0.1:83/
curl -s --tcp-fastopen http://127.0.0.1:9/ ; curl -s --tcp-fastopen http://192.0.2.1/
curl -s -x http://127.0.0.1:3128 http://192.0.2.1/ ; curl -s --interface lo http://127.0.0.1:9/
curl -s tftp://127.0.0.1:69/x --connect-timeout 1 ; curl -s tftp://192.0.2.1/x --connect-timeout 1
curl -s file:///scratch/f -o copy && cat copy ; curl -s file:///none ; curl -s -T none file:///tmp/x
busybox httpd -p 127.0.0.1:8080 -h /scratch
curl -s -c cookies -D headers --retry 20 --retry-connrefused --retry-delay 1 -o got http://127.0.0.1:8080/f && cmp f got
curl -s --unix-socket /none http://x/ ; curl -s -K none ; curl -s --cacert none https://127.0.0.1:9/
curl -s -Z -o '#1' 'http://127.0.0.1:8080/{f,headers,none}' ; ls f headers
echo ok
