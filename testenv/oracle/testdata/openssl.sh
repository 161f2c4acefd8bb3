# openssl: keys, certificates, and TLS over loopback.
set -e
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem 2>/dev/null
openssl req -x509 -new -key key.pem -days 2 -subj /CN=localhost -out cert.pem
openssl x509 -in cert.pem -noout -subject && openssl verify -CAfile cert.pem cert.pem
seq 1000 >n; openssl dgst -sha256 -sign key.pem -out n.sig n && openssl pkey -in key.pem -pubout -out pub.pem && openssl dgst -sha256 -verify pub.pem -signature n.sig n
openssl enc -aes-256-cbc -pbkdf2 -pass pass:x -in n -out n.enc && openssl enc -d -aes-256-cbc -pbkdf2 -pass pass:x -in n.enc | cmp - n
openssl rand -hex 8 >/dev/null && openssl passwd -6 x >/dev/null && openssl ciphers >/dev/null && openssl s_time -connect 192.0.2.1:443 2>/dev/null >/dev/null || true
(openssl s_server -accept 127.0.0.1:7443 -cert cert.pem -key key.pem -www -naccept 1 >server 2>&1 || true) &
for i in 1 2 3 4 5 6 7 8 9; do printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -connect 127.0.0.1:7443 -CAfile cert.pem -quiet -ign_eof >client 2>/dev/null && [ -s client ] && break; sleep 0.3; done
wait; grep -c Cipher client >/dev/null
openssl x509 -in none 2>/dev/null || openssl s_client -connect 192.0.2.1:443 </dev/null 2>/dev/null || openssl s_client -connect no.such.example:443 </dev/null 2>/dev/null || true
openssl ca -config none -in none 2>/dev/null || OPENSSL_CONF=/scratch/none openssl version
echo ok
