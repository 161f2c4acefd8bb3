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

struct pid {
	unsigned int level;
	struct upid numbers[];
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
	void *i_private;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct dentry {
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
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path root;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	struct file *exe_file;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
	struct pid *pids[4]; /* by enum pid_type */
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	__u64 start_boottime;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	char comm[16];
	struct fs_struct *fs;
	struct files_struct *files;
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
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long long regs[31];
	unsigned long long orig_x0; /* the first argument: regs[0] holds the result by then */
};
#endif

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
#define ARG1(r) ((r)->di)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#elif defined(__TARGET_ARCH_arm64)
#define ARG1(r) ((r)->orig_x0)
#define ARG2(r) ((r)->regs[1])
#define ARG3(r) ((r)->regs[2])
#else
#error "no register names for this architecture"
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
	PIDTYPE_TGID = 1,
	SIGNAL_GROUP_EXIT = 0x4,
	AF_INET = 2,
	AF_INET6 = 10,
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2,
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86dd,
	O_WRONLY = 01,
	O_CREAT = 0100,
	O_EXCL = 0200,
	O_TRUNC = 01000,
	NSFS_MAGIC = 0x6e736673,
};

#endif
