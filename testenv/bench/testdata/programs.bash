# What BenchmarkPrograms times. Prints "took NAME NANOSECONDS" for each turn.
set -eu
turns=3

timed() {
    local name=$1 began ended
    shift
    began=${EPOCHREALTIME/./}
    "$@" >/dev/null 2>&1
    ended=${EPOCHREALTIME/./}
    echo "took $name $(((ended - began) * 1000))"
}

# A compile of four files that include what ordinary programs do.
mkdir compile
for i in 1 2 3 4; do
    cat >compile/$i.c <<EOF
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static double table[512];
int compare$i(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
double work$i(int n)
{
	for (int k = 0; k < 512; k++)
		table[k] = sin(k * $i.5) * n;
	return table[n % 512];
}
EOF
done
echo 'int main(void) { return 0; }' >compile/main.c
compile() { gcc -O1 -o compile/program compile/*.c -lm; }

# A repository of 300 files, cloned from a path, which links nothing.
git init -q repository
for i in $(seq 300); do
    mkdir -p repository/$((i % 20))
    seq $i $((i + 200)) >repository/$((i % 20))/$i
done
git -C repository add .
git -C repository -c user.name=x -c user.email=x@example.com commit -q -m files
clone() { git clone -q --no-hardlinks repository copy$turn; }

walk() { find /usr -xdev; }

cat >loop.c <<'EOF'
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Opens and closes one file again and again; never twice the same way when asked for that,
 * so that nothing is a repeat. */
int main(int argc, char **argv)
{
	int vary = argc > 1 ? -1 : 0;

	for (int i = 0; i < 40000; i++) {
		int flags = (i & 1 ? O_NONBLOCK : 0) | (i & 2 ? O_DSYNC : 0) | (i & 4 ? O_ASYNC : 0);

		close(open("/etc/passwd", O_RDONLY | (flags & vary)));
	}
	return 0;
}
EOF
gcc -O1 -o loop loop.c

for turn in $(seq $turns); do
    timed compile compile
    timed clone clone
    timed walk walk
    timed loop ./loop vary
    timed repeats ./loop
done
