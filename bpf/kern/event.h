/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a ring record looks like. These structures are the only definition there is:
 * bpf2go makes the Go ones from them. A record is one of the *_event structures,
 * followed by the bytes that its length fields name.
 */
#ifndef PROCTOR_EVENT_H
#define PROCTOR_EVENT_H

#include <linux/types.h>

enum limits {
	PATH_CAP = 4096, /* bytes kept of a path: PATH_MAX */
	ARGV_CAP = 32768, /* bytes kept of a command line */
	COMM_LEN = 16,
};

enum event_kind {
	EVENT_NONE, /* never sent: an all-zero record is a broken one */
	EVENT_OPEN,
	EVENT_EXEC,
	EVENT_FORK,
	EVENT_EXIT,
	EVENT_CONNECT,
	EVENT_SEND,
	EVENT_DROP, /* a packet that got past the hooks before it */
	EVENT_OOM,
	EVENT_KINDS,
};

/* Who acted. Numbers are the run's own, except host_pid. */
struct process {
	__u32 pid; /* thread group */
	__u32 tid; /* thread, 0 for the leader */
	__u32 ppid; /* parent's thread group, 0 when it is outside the PID namespace */
	__u32 host_pid; /* thread group on the host */
	__u8 comm[COMM_LEN];
};

struct event {
	__u64 seq; /* per run, from 1; given before the ring is tried */
	__u64 time; /* ns on the boot clock */
	struct process who;
	enum event_kind kind;
	__u32 size; /* of the whole record */
};

enum path_mark {
	PATH_UNRESOLVED = 1, /* the caller's string, not the kernel's object */
	PATH_TRUNCATED = 2, /* the front is missing (unresolved: the end) */
	PATH_DELETED = 4, /* the name is no longer in its directory */
	PATH_PSEUDO = 8, /* no place in the tree: a struct pseudo precedes the name */
};

/* A file without a place in the tree: a pipe, a memfd, a namespace. */
struct pseudo {
	__u64 inode;
	__u64 magic; /* of the file system */
};

struct open_event {
	struct event head;
	__s32 result; /* descriptor, or -errno */
	__u32 flags; /* O_*, of this architecture */
	__u32 marks; /* enum path_mark */
	__u32 path_len;
};

struct exec_event {
	struct event head;
	__u32 marks; /* enum path_mark, of the file */
	__u32 file_len; /* first variable part */
	__u32 argv_len; /* second: strings, each ended by NUL */
	__u32 argv_size; /* true length, larger than argv_len when cut */
};

struct fork_event {
	struct event head;
	__u32 child;
	__u32 child_host;
};

struct exit_event {
	struct event head;
	__u32 status; /* as wait(2) gives it */
	__u32 unused;
};

enum net_rule {
	RULE_NONE,
	RULE_LOOPBACK,
	RULE_NO_GRANT,
	RULE_BACKSTOP,
};

struct net_event {
	struct event head;
	__u8 address[16]; /* network order; IPv4 in the first four bytes */
	__u16 port; /* host order */
	__u16 protocol;
	__u8 family; /* 4 or 6 */
	__u8 mapped; /* written as ::ffff:a.b.c.d */
	__u8 allowed;
	__u8 rule; /* enum net_rule */
};

/* A pseudo file's name may be preceded by its struct pseudo. */
struct open_record {
	struct open_event event;
	__u8 path[sizeof(struct pseudo) + PATH_CAP];
};

struct exec_record {
	struct exec_event event;
	__u8 data[sizeof(struct pseudo) + PATH_CAP + ARGV_CAP];
};

#endif
