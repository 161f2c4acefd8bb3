/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel's structures, as far as these programs read them. Offsets are filled in
 * at load time from the running kernel's BTF, so only names and types matter here.
 */
#ifndef PROCTOR_KERNEL_H
#define PROCTOR_KERNEL_H

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct upid {
	int nr;
	void *ns;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct pid {
	unsigned int level;
	struct hlist_head tasks[4]; /* by enum pid_type */
	struct upid numbers[];
};

struct xarray {
	void *xa_head;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct idr {
	struct xarray idr_rt;
};

struct pid_namespace {
	struct idr idr;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct proc_ns_operations {
	const char *name;
};

struct ns_common {
	const struct proc_ns_operations *ops;
};

struct inode {
	unsigned long i_ino;
	__u32 i_generation;
	void *i_private;
};

struct seqcount {
	unsigned int sequence; /* odd while the dentry is renamed */
};

struct seqcount_spinlock {
	struct seqcount seqcount;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct dentry {
	struct seqcount_spinlock d_seq;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	unsigned int f_flags;
	struct path f_path;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

typedef struct {
	int counter;
} atomic_t;

/* The count of a file's references, since 6.13 and before. */
struct file___ref {
	struct {
		struct {
			long long counter;
		} refcnt;
	} f_ref;
};

struct file___count {
	struct {
		long long counter;
	} f_count;
};

struct files_struct {
	atomic_t count;
	struct fdtable *fdt;
};

struct fs_struct {
	struct path root;
	struct path pwd;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_start;
	unsigned long env_end;
	struct file *exe_file;
};

struct linux_binprm {
	const char *interp;
	const char *filename;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

struct uid_gid_extent {
	__u32 first;
	__u32 lower_first;
	__u32 count;
};

enum uid_gid_map_limits {
	MAP_EXTENTS = 5, /* UID_GID_MAP_MAX_BASE_EXTENTS: more are kept elsewhere */
};

struct uid_gid_map {
	__u32 nr_extents;
	struct uid_gid_extent extent[MAP_EXTENTS];
};

struct user_namespace {
	struct uid_gid_map uid_map;
	struct uid_gid_map gid_map;
};

struct cred {
	kuid_t uid;
	kgid_t gid;
	struct user_namespace *user_ns;
};

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_rcv_saddr;
	__u16 skc_num; /* host order */
	unsigned short skc_family;
	unsigned char skc_state;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};

struct socket {
	struct sock *sk;
};

struct unix_address {
	int len; /* of the whole sockaddr_un */
};

struct netlink_sock {
	bool bound;
};

struct unix_sock {
	struct unix_address *addr;
	struct path path; /* of its file, where it has one */
};

struct kernel_siginfo {
	int si_signo;
	int si_code;
	struct {
		struct {
			int _syscall;
			unsigned int _arch;
		} _sigsys;
	} _sifields;
};

/* The ABI of the call that a task is in. */
struct thread_info {
	__u32 status; /* x86 */
	unsigned long flags; /* arm64 */
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
	struct pid *pids[4]; /* by enum pid_type */
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	int exit_code;
	__u64 start_boottime;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct hlist_node pid_links[4]; /* by enum pid_type */
	char comm[16];
	struct fs_struct *fs;
	struct files_struct *files;
	const struct cred *cred;
	struct signal_struct *signal;
	struct css_set *cgroups;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__cgroup {
	struct bpf_iter_meta *meta;
	struct cgroup *cgroup;
};

/* The context of a syscalls/sys_exit_* tracepoint. */
struct syscall_trace_exit {
	int nr;
	long ret;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r10;
	unsigned long r8;
	unsigned long r9;
	unsigned long bx;
	unsigned long cx;
	unsigned long bp;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long long regs[31];
	unsigned long long orig_x0; /* the first argument: regs[0] holds the result by then */
	int syscallno;
};
#endif

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
#define ARG1(r) ((r)->di)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#define ARG4(r) ((r)->r10)
#define ARG5(r) ((r)->r8)
#define ARG6(r) ((r)->r9)
#elif defined(__TARGET_ARCH_arm64)
#define ARG1(r) ((r)->orig_x0)
#define ARG2(r) ((r)->regs[1])
#define ARG3(r) ((r)->regs[2])
#define ARG4(r) ((r)->regs[3])
#define ARG5(r) ((r)->regs[4])
#define ARG6(r) ((r)->regs[5])
#else
#error "no register names for this architecture"
#endif

/* The compiler shall neither forget a bound that it has proved, nor move the check. 64 bits
 * wide: of half a register, Linux 6.1 forgets the bound when it is copied. */
static __always_inline __u64 at_most(__u64 n, __u64 cap)
{
	barrier_var(n);
	if (n > cap)
		n = cap;
	barrier_var(n);
	return n;
}

/* What was read before stays before what is read next. On x86 it does; an atomic addition that is
 * asked for its result is a full barrier elsewhere. */
#if defined(__TARGET_ARCH_x86)
#define READ_BARRIER() barrier()
#else
#define READ_BARRIER()                                                                     \
	({                                                                                 \
		__u64 __any = 0;                                                           \
		barrier_var(__any);                                                        \
		__sync_fetch_and_add(&__any, 1);                                           \
	})
#endif

extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* A field of a kernel object, whatever kind of pointer leads there. From Linux 6.2 on it
 * is a plain load that can't fault, a fraction of the helper's price; the verifier drops
 * the other branch. A load through a pointer that the verifier trusts is as cheap to run,
 * but can take it a millisecond to check. */
#define READ(type, object, field)                                                          \
	({                                                                                 \
		typeof(((type *)0)->field) __value;                                        \
		const void *__object = object;                                             \
		if (bpf_rdonly_cast)                                                       \
			__value = ((type *)bpf_rdonly_cast(__object,                       \
							   bpf_core_type_id_kernel(type))) \
					  ->field;                                         \
		else                                                                       \
			bpf_core_read(&__value, sizeof(__value),                           \
				      &((type *)__object)->field);                         \
		__value;                                                                   \
	})

enum {
	PIDTYPE_PID = 0,
	PIDTYPE_TGID = 1,
	SIGNAL_GROUP_EXIT = 0x4,
	SIGSYS = 31,
	SYS_SECCOMP = 1,
	TS_COMPAT = 2, /* x86: thread_info.status */
	_TIF_32BIT = 1 << 22, /* arm64: thread_info.flags */
	E2BIG = 7,
	EBADF = 9,
	EFAULT = 14,
	EINVAL = 22,
	EPERM = 1,
	ENOSYS = 38,
	AT_FDCWD = -100,
	AF_UNIX = 1,
	AF_NETLINK = 16,
	AF_INET = 2,
	AF_INET6 = 10,
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2,
	IPPROTO_HOPOPTS = 0,
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86dd,
	O_WRONLY = 01,
	O_CREAT = 0100,
	O_EXCL = 0200,
	O_TRUNC = 01000,
	O_RDWR = 02,
	O_PATH = 010000000,
	F_DUPFD = 0,
	F_DUPFD_CLOEXEC = 1030,
	TCP_LISTEN = 10,
	NSFS_MAGIC = 0x6e736673,
	SOCKFS_MAGIC = 0x534f434b,
};

#endif
