# netcat and socat: both ends of TCP, UDP and unix sockets; addresses outside.
nc -l 127.0.0.1 7001 >heard & sleep 0.3; echo tcp | nc -N 127.0.0.1 7001; wait; cat heard
timeout 5 nc -u -l 127.0.0.1 7002 >datagrams & sleep 0.3; echo udp | nc -u -w 1 127.0.0.1 7002; wait; cat datagrams
nc -U -l s >unix & sleep 0.3; echo unix | nc -N -U s; wait; cat unix
nc -z -v 127.0.0.1 7000-7010 >/dev/null 2>&1; nc -z -w 1 192.0.2.1 80; nc -u -z -w 1 192.0.2.1 53; nc -z -6 ::1 7003; nc -U none
socat TCP-LISTEN:7004,reuseaddr,fork EXEC:cat 2>/dev/null & server=$!
sleep 0.5; for i in 1 2 3; do echo $i | socat - TCP:127.0.0.1:7004; done; kill $server; wait
socat -u UDP-RECVFROM:7005 CREATE:got & sleep 0.5; echo one | socat -u - UDP-SENDTO:127.0.0.1:7005; wait; cat got
socat -u - TCP:192.0.2.1:80 </dev/null 2>/dev/null; echo x | socat -u - UDP-DATAGRAM:192.0.2.1:9 2>/dev/null
echo x | socat -u - UDP6-SENDTO:[::1]:7006 2>/dev/null; socat -u OPEN:none - 2>/dev/null
socat -u SYSTEM:'echo from a shell' OPEN:out,creat,append; socat -u FILE:out STDOUT
timeout 1 socat PTY,link=p - </dev/null 2>/dev/null; timeout 1 socat -u PIPE:fifo,creat,nonblock - </dev/null >/dev/null 2>&1
echo ok
