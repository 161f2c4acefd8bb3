/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor and a box's init say to each other, over one stream socket.
 * Numbers are in host byte order: both ends are on one machine.
 *
 * supervisor → init, once:  struct go, with three descriptors (stdin, stdout, stderr)
 *                           as SCM_RIGHTS on its first byte, then `length` bytes: the
 *                           working directory, argc arguments and envc environment
 *                           entries, each ended by a NUL.
 * init → supervisor:        struct report, at each step.
 *
 * End of file from the supervisor ends everything in the box.
 * protocol.go is the other side; TestProtocol compiles this header and compares.
 */
#ifndef PROCTOR_PROTOCOL_H
#define PROCTOR_PROTOCOL_H

#include <stdint.h>

#define GO_MAGIC 0x31474f50u /* "POG1" */
#define GO_MAX (4u << 20)    /* bytes after struct go; the supervisor refuses more */
#define CPU_WORDS 16         /* 1,024 processors */

struct go {
	uint32_t magic;
	uint32_t length;
	uint32_t argc;
	uint32_t envc;
	uint64_t cpus[CPU_WORDS]; /* processors the program may be seen on; all zero: no change */
};

enum report_kind {
	REPORT_READY = 1,   /* waiting for struct go */
	REPORT_STARTED = 2, /* value: the program's process number inside the box */
	REPORT_FAILED = 3,  /* value: errno; detail: which step */
	REPORT_EXITED = 4,  /* value: wait(2) status of the program */
};

enum report_step {
	STEP_MESSAGE = 1, /* the go message was malformed */
	STEP_FORK = 2,
	STEP_STDIO = 3,
	STEP_CHDIR = 4,
	STEP_EXEC = 5,
};

struct report {
	uint32_t kind;
	uint32_t detail;
	int64_t value;
};

#endif
