/* musl's resolver: a granted name is found, any other is not there, both at once. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void)
{
	const char *names[] = { "api.example", "other.example" };

	for (int i = 0; i < 2; i++) {
		struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
		double began = now();
		int error = getaddrinfo(names[i], "443", &hints, &found);

		printf("musl %s %s %s\n", names[i], error ? gai_strerror(error) : "found",
		       now() - began < 0.5 ? "at once" : "late");
		if (found)
			freeaddrinfo(found);
	}
	return 0;
}
