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
	ENV_CAP = 8192, /* bytes looked at for the names in an environment */
	XATTR_CAP = 256, /* XATTR_NAME_MAX and its NUL */
	COMM_LEN = 16,
	CALL_ARGS = 6,
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
	EVENT_CHANGE, /* to a name, or to what is known of a file */
	EVENT_BIND,
	EVENT_LISTEN,
	EVENT_REFUSED, /* a system call that a box does not have */
	EVENT_RACED, /* an earlier event may name the wrong file */
	EVENT_KINDS,
};

/* Who acted. Numbers are the run's own, except host_pid. A process is told from a later
 * one with its number by start. */
struct process {
	__u32 pid; /* thread group */
	__u32 tid; /* thread, 0 for the leader */
	__u32 ppid; /* parent's thread group, 0 when it is outside the PID namespace */
	__u32 host_pid; /* thread group on the host */
	__u64 start; /* of the thread group: ns on the boot clock */
	__u8 comm[COMM_LEN];
};

struct event {
	__u64 seq; /* per run, from 1; given before the ring is tried */
	__u64 time; /* ns on the boot clock */
	struct process who;
	enum event_kind kind;
	__u32 size; /* of the whole record, without a struct repeat */
};

/* Precedes an event that stands for repeats of an earlier one: the same act of the same
 * thread, equal to the last bit. Its own time is that of the last. */
struct repeat {
	__u64 zero; /* where another record has its number, which is never 0 */
	__u64 of; /* seq of the earlier one */
	__u64 count;
	__u64 first; /* ns on the boot clock */
};

enum path_mark {
	PATH_UNRESOLVED = 1, /* the caller's string, not the kernel's object */
	PATH_TRUNCATED = 2, /* the front is missing (unresolved: the end) */
	PATH_DELETED = 4, /* the name is no longer in its directory */
	PATH_PSEUDO = 8, /* no place in the tree: a struct pseudo precedes the name */
	PATH_RACED = 16, /* it may be another: what it is of was exchanged or renamed meanwhile */
};

/* A file without a place in the tree: a pipe, a memfd, a namespace. */
struct pseudo {
	__u64 inode;
	__u64 magic; /* of the file system */
};

/* A path in a record: len bytes, a struct pseudo among them where marks say so. */
struct path_part {
	__u32 marks; /* enum path_mark */
	__u32 len;
};

/* Which file it was, whatever its name: two that have these in common are one. */
struct identity {
	__u64 inode;
	__u32 device;
	__u32 generation;
};

enum open_mark {
	OPEN_MEMFD = 1, /* memfd_create */
};

struct open_event {
	struct event head;
	struct identity file; /* zero on failure */
	__s32 result; /* 0, or -errno */
	__u32 flags; /* O_*, of this architecture */
	__u32 marks; /* enum open_mark */
	struct path_part path; /* first */
	struct path_part dir; /* second: what a relative unresolved path starts from */
};

/* Followed by the parts in this order. */
struct exec_event {
	struct event head;
	__s32 result; /* 0, or -errno: then nothing but file and cwd is there */
	__u32 uid; /* in the task's user namespace */
	__u32 gid;
	struct path_part file;
	struct path_part cwd;
	struct path_part script; /* the name it was called by, where an interpreter was put before it */
	__u32 argv_len; /* strings, each ended by NUL */
	__u32 argv_size; /* true length, larger than argv_len when cut */
	__u32 env_len; /* likewise; only the names shall go further than the decoder */
	__u32 env_size;
};

struct fork_event {
	struct event head;
	__u64 start; /* child's */
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
	RULE_GRANTED,
	RULE_RESOLVER,
	RULE_PROXY,
};

/* Connects, datagrams, dropped packets: where to. Binds and listens: from where. */
struct net_event {
	struct event head;
	__u8 address[16]; /* network order; IPv4 in the first four bytes */
	__u16 port; /* host order */
	__u16 protocol;
	__u8 family; /* 4 or 6; 1: UNIX, whose name follows; 0: none of these */
	__u8 mapped; /* written as ::ffff:a.b.c.d */
	__u8 allowed;
	__u8 rule; /* enum net_rule */
	__s32 result; /* of a bind or listen: 0, or -errno */
	__u32 name_len; /* UNIX: abstract names start with NUL */
	struct path_part path; /* UNIX: where its file is, instead of a name; or what a name that failed starts from */
};

enum change_act {
	CHANGE_NONE,
	CHANGE_TRUNCATE,
	CHANGE_UNLINK,
	CHANGE_RMDIR,
	CHANGE_RENAME,
	CHANGE_EXCHANGE,
	CHANGE_LINK,
	CHANGE_SYMLINK,
	CHANGE_MKDIR,
	CHANGE_MKNOD,
	CHANGE_MODE,
	CHANGE_OWNER,
	CHANGE_TIMES,
	CHANGE_XATTR_SET,
	CHANGE_XATTR_REMOVE,
};

/* Followed by the parts in this order. A path with dir's PATH_UNRESOLVED not set and no
 * path is the descriptor's file itself. */
struct change_event {
	struct event head;
	__u64 value; /* mode, new length, or owner << 32 | group */
	__u64 value2; /* device, or flags of a rename */
	__s32 result; /* 0, or -errno */
	enum change_act act;
	struct path_part path, dir;
	struct path_part to, to_dir; /* second name; a symbolic link's target; an attribute */
};

struct refused_event {
	struct event head;
	__u64 args[CALL_ARGS];
	__u32 number; /* of the system call, in its ABI */
	__u32 abi; /* AUDIT_ARCH_* */
	__s32 result; /* -errno, or 0 when signal ended the thread */
	__u32 signal;
};

struct raced_event {
	struct event head;
	__u64 of; /* seq of the doubtful event */
};

enum record_caps {
	PART_CAP = sizeof(struct pseudo) + PATH_CAP,
	SUN_CAP = 108, /* bytes of a UNIX socket's name */
};

struct open_record {
	struct open_event event;
	__u8 data[2 * PART_CAP + 8];
};

struct exec_record {
	struct exec_event event;
	__u8 data[3 * PART_CAP + ARGV_CAP + ENV_CAP + 8];
};

struct change_record {
	struct change_event event;
	__u8 data[4 * PART_CAP + 8];
};

struct net_record {
	struct net_event event;
	__u8 data[SUN_CAP + PART_CAP + 8];
};

#endif
