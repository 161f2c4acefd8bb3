# gawk: files read and written from within, commands in pipes both ways, its own sockets.
set -e
cat >program <<'X'
BEGIN {
	while ((getline line < "/etc/passwd") > 0) { split(line, f, ":"); print f[1] > "names"; print f[7] >> "shells" }
	close("names")
	while (("sort names | head -n 3" | getline name) > 0) n++
	sort = "sort -r"
	for (i = 1; i <= 20; i++) print i |& sort
	close(sort, "to")
	while ((sort |& getline x) > 0) last = x
	close(sort)
	if ((getline line < "/none") >= 0) exit 1
	service = "/inet/tcp/0/127.0.0.1/9"
	if ((service |& getline line) > 0) exit 1
	service = "/inet/udp/0/192.0.2.1/53"
	PROCINFO[service, "NONFATAL"] = 1
	print "x" |& service
	system("test -s names")
	print n, last
}
X
gawk -f program
printf 'a 1\nb 2\n' >in1; printf 'c 3\n' >in2
gawk -i inplace '{ $2 *= 2; print }' in1 in2
gawk '{ print > ($1 ".out") } END { print ENVIRON["HOME"] > "/dev/stderr" }' in1 in2
cat a.out b.out c.out
echo ok
