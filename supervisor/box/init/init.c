/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of a box.
 *
 * It is started before the code of the run is known, connects to the supervisor's
 * socket, waits for one go message, starts the program, reaps whatever is orphaned
 * onto it, reports how the program ended, and goes; the kernel then kills the rest of
 * the PID namespace. If the supervisor goes away first, so does everything here, as
 * nobody would be left to keep the deadline.
 *
 * It runs as the same user as the code. What keeps the code out of its memory and
 * descriptors is that it is undumpable (no ptrace, no /proc/1/mem, environ or fd for
 * the code), that the seccomp profile refuses ptrace, process_vm_writev and
 * pidfd_getfd, and that a PID 1 takes no signal from inside for which it has no handler.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol.h"

#define EXIT_SETUP 125 /* the same code `proctor run` gives when it could not run the code */

static int control = -1;

static void report(uint32_t kind, uint32_t detail, int64_t value)
{
	struct report r = { .kind = kind, .detail = detail, .value = value };
	/* MSG_NOSIGNAL: a supervisor that is gone is seen at the next poll. */
	while (send(control, &r, sizeof(r), MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static void fail(uint32_t step, int err)
{
	report(REPORT_FAILED, step, err);
	_exit(EXIT_SETUP);
}

static int dial(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(addr.sun_path))
		return -1;
	strcpy(addr.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -1;
	return fd;
}

/* Reads exactly n bytes; end of file means that the supervisor is gone. */
static void read_full(void *buf, size_t n)
{
	char *p = buf;
	while (n > 0) {
		ssize_t got = read(control, p, n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(EXIT_SETUP);
		p += got;
		n -= (size_t)got;
	}
}

static void receive(struct go *go, int stdio[3])
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(3 * sizeof(int))];
	} ancillary;
	struct iovec iov = { .iov_base = go, .iov_len = sizeof(*go) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &ancillary,
		.msg_controllen = sizeof(ancillary),
	};
	ssize_t got;
	do {
		got = recvmsg(control, &msg, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got <= 0)
		_exit(EXIT_SETUP);

	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (!c || (msg.msg_flags & MSG_CTRUNC) || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(3 * sizeof(int)))
		fail(STEP_MESSAGE, EBADMSG);
	memcpy(stdio, CMSG_DATA(c), 3 * sizeof(int));

	read_full((char *)go + got, sizeof(*go) - (size_t)got);
	if (go->magic != GO_MAGIC || go->length > GO_MAX || go->argc == 0 ||
	    go->argc > go->length || go->envc > go->length)
		fail(STEP_MESSAGE, EBADMSG);
}

/* The next NUL-ended string, or a failed message. */
static char *next(char **p, const char *end)
{
	char *s = *p;
	char *nul = memchr(s, 0, (size_t)(end - s));
	if (!nul)
		fail(STEP_MESSAGE, EBADMSG);
	*p = nul + 1;
	return s;
}

static void affinity(const uint64_t cpus[CPU_WORDS])
{
	for (int i = 0; i < CPU_WORDS; i++) {
		if (!cpus[i])
			continue;
		/* Best effort: it only tells thread pools how many workers make sense; the
		 * quota is the limit. */
		syscall(SYS_sched_setaffinity, 0, CPU_WORDS * sizeof(uint64_t), cpus);
		return;
	}
}

/* In the child: becomes the program, or reports why not. */
static void become(const int stdio[3], const char *cwd, char **argv, char **envp)
{
	for (int i = 0; i < 3; i++)
		if (dup2(stdio[i], i) < 0)
			fail(STEP_STDIO, errno);
	/* Everything else is close-on-exec, this takes what is not, should there ever be. */
	syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
	setsid();
	umask(022);
	/* Whatever the supervisor was started with: nohup ignores SIGHUP, for one. By the bare
	 * call, as libc keeps signals 32 and 33 to itself; all zero is SIG_DFL. */
	static const unsigned long defaults[8];
	for (int sig = 1; sig < _NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, defaults, NULL, _NSIG / 8);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir(cwd) < 0)
		fail(STEP_CHDIR, errno);
	execve(argv[0], argv, envp);
	fail(STEP_EXEC, errno);
}

/* Reaps what has ended; when the program is among it, reports and goes. */
static void reap(pid_t program)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		if (pid == 0 || (pid < 0 && errno != EINTR))
			return;
		if (pid != program)
			continue;
		report(REPORT_EXITED, 0, status);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
}

int main(int argc, char **argv)
{
	prctl(PR_SET_DUMPABLE, 0);
	/* Whatever came along is not for here, and least of all for the program. */
	syscall(SYS_close_range, 3u, ~0u, 0u);
	if (argc != 2 || (control = dial(argv[1])) < 0)
		return EXIT_SETUP;

	/* Ignored, as a parent may leave it, children would end without a status. Blocked and
	 * read from a descriptor, no handler interrupts anything. */
	signal(SIGCHLD, SIG_DFL);
	sigset_t chld;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	int signals = signalfd(-1, &chld, SFD_CLOEXEC);
	if (signals < 0)
		return EXIT_SETUP;

	report(REPORT_READY, 0, 0);

	struct go go;
	int stdio[3];
	receive(&go, stdio);
	char *text = malloc(go.length + 1);
	char **vector = calloc((size_t)go.argc + go.envc + 2, sizeof(char *));
	if (!text || !vector)
		fail(STEP_MESSAGE, ENOMEM);
	read_full(text, go.length);
	char *p = text, *end = text + go.length;
	const char *cwd = next(&p, end);
	for (uint32_t i = 0; i < go.argc; i++)
		vector[i] = next(&p, end);
	char **envp = vector + go.argc + 1;
	for (uint32_t i = 0; i < go.envc; i++)
		envp[i] = next(&p, end);

	affinity(go.cpus);
	pid_t program = fork();
	if (program < 0)
		fail(STEP_FORK, errno);
	if (program == 0)
		become(stdio, cwd, vector, envp);
	report(REPORT_STARTED, 0, program);
	/* The program's pipes are its own: the supervisor must see their end. */
	for (int i = 0; i < 3; i++) {
		close(stdio[i]);
		close(i);
	}

	struct pollfd fds[2] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = control, .events = POLLIN },
	};
	for (;;) {
		if (poll(fds, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			return EXIT_SETUP;
		}
		if (fds[0].revents & POLLIN) {
			struct signalfd_siginfo info;
			if (read(signals, &info, sizeof(info)) > 0)
				reap(program);
		}
		/* Nothing more is ever said to us: a readable control socket is its end. */
		if (fds[1].revents)
			return EXIT_SETUP;
	}
}
