# GCC and binutils: objects, archives, shared libraries, and programs that open and connect.
set -e
mkdir i
cat >i/h.h <<'X'
int lib(void);
X
printf '#include "h.h"\n#include <math.h>\nint lib(void) { return (int)sqrt(1764); }\n' >lib.c
cat >main.c <<'X'
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "h.h"
extern char **environ;
static void *thread(void *name) { int fd = open(name, O_RDONLY); if (fd >= 0) close(fd); return NULL; }
int main(void)
{
	pthread_t t[8];
	pid_t child;
	char *argv[] = { "echo", "spawned", NULL };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(4660) };
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, thread, i % 2 ? "/etc/passwd" : "/none");
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	if (posix_spawn(&child, "/bin/echo", NULL, NULL, argv, environ) == 0)
		waitpid(child, NULL, 0);
	if (vfork() == 0) {
		execl("/none", "none", NULL);
		_exit(7);
	}
	wait(NULL);
	inet_pton(AF_INET, "192.0.2.1", &a.sin_addr);
	connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a));
	struct sockaddr_in b = a, c = a;
	struct iovec v = { "x", 1 };
	struct mmsghdr m[3] = { { .msg_hdr = { &b, sizeof(b), &v, 1 } }, { .msg_hdr = { &c, sizeof(c), &v, 1 } }, { .msg_hdr = { &a, sizeof(a), &v, 1 } } };
	inet_pton(AF_INET, "127.0.0.1", &b.sin_addr);
	inet_pton(AF_INET, "127.0.0.2", &c.sin_addr);
	printf("%d\n", sendmmsg(socket(AF_INET, SOCK_DGRAM, 0), m, 3, 0));
	creat("created", 0600);
	printf("%d\n", lib());
	return 0;
}
X
gcc -Ii -O2 -Wall -Wno-unused-result -c lib.c main.c && ar rcs libl.a lib.o && gcc main.o -L. -ll -lm -o static-lib && ./static-lib
gcc -Ii -shared -fPIC lib.c -lm -o libd.so && gcc main.o -L. -ld -Wl,-rpath,"$PWD" -o dynamic && ./dynamic
gcc -Ii -static main.c lib.c -lm -o static 2>/dev/null && ./static
gcc -pipe -save-temps -Ii -g lib.c -c && nm libl.a >/dev/null && objdump -d dynamic >/dev/null && strip static && readelf -a static >/dev/null
echo 'int x = ;' | gcc -xc -c - -o x.o 2>/dev/null || gcc none.c 2>/dev/null || gcc main.o -lnone 2>/dev/null || true
gcc -flto -Ii lib.c main.c -lm -o lto && ./lto
echo ok
