/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A file's path from the kernel's own objects: the way d_path goes, from the leaf over
 * dentries and mounts up to the task's root. No string of the caller is read, so there
 * is none to change under our eyes.
 */
#ifndef PROCTOR_PATH_H
#define PROCTOR_PATH_H

#include "run.h"

enum walk_limits {
	NAME_CAP = 256, /* NAME_MAX and a slash */
	WALK_STEPS = 4096, /* components and mounts: more than PATH_CAP can hold */
	WALK_TRIES = 8,
	SEEN_CAP = 2048, /* components that PATH_CAP can hold */
	CHECKED_FIRST = 6, /* of them, without a loop's price: most paths have no more */
};

/* Filled from the end of bytes towards the front: the leaf comes first. at is here, and not
 * in struct walk, because the verifier of Linux 6.1 checks bpf_loop's callback for its first
 * turn alone: what stands on the stack has a known value then, and branches that only later
 * turns take are removed. What a map holds is never known. */
struct path_buffer {
	__u8 bytes[PATH_CAP + NAME_CAP];
	__u32 at; /* start of what is written */
	__u32 seen; /* dentries whose names and parents were read */
	__u32 moved; /* one of them was renamed meanwhile */
	__u32 sequences[SEEN_CAP]; /* theirs, before they were read */
	__u64 dentries[SEEN_CAP];
};

/* The walk's buffer, one for each CPU: the tracing programs that use it run with
 * preemption off. An array because its lookup is inlined. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_buffer);
} path_buffers SEC(".maps");

struct walk {
	struct dentry *dentry;
	struct vfsmount *mnt;
	struct dentry *root;
	struct vfsmount *root_mnt;
	__u32 marks;
	bool done;
};

static __always_inline __u32 sequence(const struct dentry *dentry)
{
	return READ(struct dentry, dentry, d_seq.seqcount.sequence);
}

static long walk_step(__u32 step, struct walk *w)
{
	__u32 zero = 0;
	struct path_buffer *buffer = bpf_map_lookup_elem(&path_buffers, &zero);
	struct vfsmount *mnt = w->mnt;
	struct dentry *dentry = w->dentry;
	struct dentry *parent;
	__u32 at, len, seq, n;

	if (!buffer)
		return 1;
	if (dentry == w->root && mnt == w->root_mnt) {
		w->done = true;
		return 1;
	}
	if (dentry == READ(struct vfsmount, mnt, mnt_root)) {
		struct mount *mount = (void *)mnt - bpf_core_field_offset(struct mount, mnt);
		struct mount *above = READ(struct mount, mount, mnt_parent);

		/* The top of this tree: outside the task's root, or detached. */
		if (above == mount) {
			w->done = true;
			return 1;
		}
		w->dentry = READ(struct mount, mount, mnt_mountpoint);
		w->mnt = (void *)above + bpf_core_field_offset(struct mount, mnt);
		return 0;
	}
	n = buffer->seen;
	if (n >= SEEN_CAP) { /* so many fill it */
		w->marks |= PATH_TRUNCATED;
		w->done = true;
		return 1;
	}
	seq = sequence(dentry);
	buffer->dentries[n] = (__u64)dentry;
	buffer->sequences[n] = seq;
	buffer->seen = n + 1;
	READ_BARRIER();
	parent = READ(struct dentry, dentry, d_parent);
	if (parent == dentry) {
		w->done = true;
		return 1;
	}
	len = READ(struct dentry, dentry, d_name.len) & (NAME_CAP - 1);
	at = buffer->at;
	if (at > PATH_CAP || len + 1 > at) {
		w->marks |= PATH_TRUNCATED;
		w->done = true;
		return 1;
	}
	at -= len + 1;
	at &= PATH_CAP - 1;
	buffer->bytes[at] = '/';
	if (bpf_probe_read_kernel(&buffer->bytes[at + 1], len, READ(struct dentry, dentry, d_name.name)))
		count(COUNTER_PATH_FAULT);
	buffer->at = at;
	w->dentry = parent;
	return 0;
}

/* Checks whether a name or a parent that was read has changed since. Returns 1 when there is nothing
 * more to check. */
static __always_inline long check_one(struct path_buffer *buffer, __u32 i)
{
	__u32 seq;

	if (i >= SEEN_CAP || i >= buffer->seen)
		return 1;
	seq = buffer->sequences[i];
	if (!(seq & 1) && sequence((struct dentry *)buffer->dentries[i]) == seq)
		return 0;
	buffer->moved = 1;
	return 1;
}

static long check_step(__u32 step, void *unused)
{
	__u32 zero = 0;
	struct path_buffer *buffer = bpf_map_lookup_elem(&path_buffers, &zero);

	return !buffer || check_one(buffer, CHECKED_FIRST + step) ? 1 : 0;
}

/* Not inline: it is called in a loop, and Linux 6.1 takes what follows the call for another one. */
static __noinline int check(struct path_buffer *buffer)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < CHECKED_FIRST; i++)
		if (check_one(buffer, i))
			return 0;
	bpf_loop(SEEN_CAP - CHECKED_FIRST, check_step, NULL, 0);
	return 0;
}

/* A file whose dentry hangs in no tree. Writes its identity and its name. */
static __always_inline __u32 pseudo_name(struct dentry *dentry, __u8 *out, __u32 *marks)
{
	struct pseudo *pseudo = (void *)out;
	struct inode *inode = READ(struct dentry, dentry, d_inode);
	const unsigned char *name = READ(struct dentry, dentry, d_name.name);
	long len;

	*marks |= PATH_PSEUDO;
	pseudo->inode = READ(struct inode, inode, i_ino);
	pseudo->magic = READ(struct super_block, READ(struct dentry, dentry, d_sb), s_magic);
	if (pseudo->magic == NSFS_MAGIC) {
		struct ns_common *ns = READ(struct inode, inode, i_private);

		name = (const void *)BPF_CORE_READ(ns, ops, name);
	}
	len = bpf_probe_read_kernel_str(out + sizeof(*pseudo), NAME_CAP, name);
	if (len < 1 || len > NAME_CAP) {
		count(COUNTER_PATH_FAULT);
		return sizeof(*pseudo);
	}
	return sizeof(*pseudo) + len - 1;
}

struct part {
	__u8 bytes[PART_CAP];
};

/* A struct path, as numbers. */
struct place {
	__u64 dentry;
	__u64 mnt;
};

/* Writes the path of a place in the tree, as the current task sees it. Global, so that it
 * is verified once and not at every call; which is why it checks its pointers. */
__noinline int place_path(struct place *place, struct part *part, struct path_part *info)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct walk w = {};
	struct dentry *dentry, *parent;
	struct vfsmount *mnt;
	struct fs_struct *fs = READ(struct task_struct, task, fs);
	struct path_buffer *buffer;
	__u32 zero = 0;
	__u32 at, len, try;
	__u8 *out;

	if (!place || !part || !info)
		return 0;
	dentry = (void *)place->dentry;
	mnt = (void *)place->mnt;
	parent = READ(struct dentry, dentry, d_parent);
	out = part->bytes;
	info->marks = 0;
	if (parent == dentry && dentry != READ(struct vfsmount, mnt, mnt_root)) {
		info->len = pseudo_name(dentry, out, &info->marks);
		return 0;
	}
	if (parent != dentry && !READ(struct dentry, dentry, d_hash.pprev))
		info->marks |= PATH_DELETED;

	buffer = bpf_map_lookup_elem(&path_buffers, &zero);
	if (!buffer) {
		count(COUNTER_SCRATCH_MISSING);
		info->marks |= PATH_TRUNCATED;
		info->len = 0;
		return 0;
	}
	/* Directories may be renamed while they are passed, which mixes names that were never
	 * together, and lengths with names that end before. When nothing that was read has changed
	 * by the end, all of it was true at one moment: then, or it is read again. */
	for (try = 0; try < WALK_TRIES; try++) {
		w.dentry = dentry;
		w.mnt = mnt;
		w.marks = 0;
		w.done = false;
		w.root = READ(struct fs_struct, fs, root.dentry);
		w.root_mnt = READ(struct fs_struct, fs, root.mnt);
		buffer->at = PATH_CAP;
		buffer->seen = buffer->moved = 0;
		bpf_loop(WALK_STEPS, walk_step, &w, 0);
		READ_BARRIER();
		check(buffer);
		if (!buffer->moved)
			break;
	}
	if (buffer->moved) {
		/* Nothing of it can be relied on, not even that it is of names alone. */
		info->marks |= PATH_TRUNCATED | PATH_RACED;
		info->len = 0;
		return 0;
	}
	if (!w.done) {
		count(COUNTER_PATH_UNFINISHED);
		w.marks |= PATH_TRUNCATED;
	}
	info->marks |= w.marks;
	at = buffer->at;
	if (at >= PATH_CAP) {
		out[0] = '/';
		info->len = 1;
		return 0;
	}
	len = PATH_CAP - at;
	if (bpf_probe_read_kernel(out, len, &buffer->bytes[at]))
		count(COUNTER_PATH_FAULT);
	info->len = len;
	return 0;
}

static __always_inline void path_of(struct path *path, __u8 *out, struct path_part *part)
{
	struct place place = {};

	bpf_core_read(&place.dentry, sizeof(place.dentry), &path->dentry);
	bpf_core_read(&place.mnt, sizeof(place.mnt), &path->mnt);
	place_path(&place, (struct part *)out, part);
}

static __always_inline void file_path(struct file *file, __u8 *out, struct path_part *part)
{
	path_of(&file->f_path, out, part);
}

static __always_inline void identify(struct file *file, struct identity *identity)
{
	struct dentry *dentry = READ(struct file, file, f_path.dentry);
	struct inode *inode = READ(struct dentry, dentry, d_inode);

	identity->inode = READ(struct inode, inode, i_ino);
	identity->generation = READ(struct inode, inode, i_generation);
	identity->device = READ(struct super_block, READ(struct dentry, dentry, d_sb), s_dev);
}

static __always_inline struct file *file_of(struct task_struct *task, __u32 fd)
{
	struct files_struct *files = READ(struct task_struct, task, files);
	struct fdtable *table = READ(struct files_struct, files, fdt);
	struct file **slots = READ(struct fdtable, table, fd);
	struct file *file = NULL;

	if (fd < READ(struct fdtable, table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	return file;
}

enum {
	LOWEST_ADDRESS = 65536, /* of anything mapped without privilege: vm.mmap_min_addr */
};

/* Whether a call that ended so may not have read its strings: they could not be read, or something
 * else was wrong with its arguments first. */
static __always_inline bool unread(long ret)
{
	return ret == -EFAULT || ret == -EINVAL || ret == -EBADF || ret == -E2BIG || ret == -ENOSYS;
}

/* Writes the caller's string to out, which has room for cap bytes. without says that the kernel
 * need not have read it. */
static __always_inline void user_string(const void *string, __u8 *out, __u32 cap, bool without,
					struct path_part *part)
{
	long n = bpf_probe_read_user_str(out, cap, string);

	part->marks = PATH_UNRESOLVED;
	if (n == 0)
		n = 1; /* an empty string, before Linux 6.2 */
	if (n < 1 || n > cap) {
		part->marks |= PATH_TRUNCATED;
		/* Where nothing can be mapped (the other half of the addresses is the kernel's), it can't have. */
		if (!without && (long)string >= LOWEST_ADDRESS) {
			count(COUNTER_STRING_FAULT);
			part->marks |= PATH_RACED;
		}
		n = 1;
	}
	if (n == cap)
		part->marks |= PATH_TRUNCATED;
	part->len = n - 1;
}

/* Writes what dirfd stands for in a call that takes one. */
static __always_inline void directory(struct task_struct *task, __s32 dirfd, __u8 *out,
				      struct path_part *part)
{
	struct fs_struct *fs;
	struct file *file;

	if (dirfd == AT_FDCWD) {
		fs = READ(struct task_struct, task, fs);
		path_of(&fs->pwd, out, part);
		return;
	}
	file = file_of(task, dirfd);
	if (file) {
		file_path(file, out, part);
		return;
	}
	part->marks = PATH_UNRESOLVED;
	part->len = 0;
}

/* An event of which a name may be another counts as one that is in doubt. */
static __always_inline void note_doubt(struct run *run, __u32 marks)
{
	if (marks & PATH_RACED)
		__sync_fetch_and_add(&run->raced, 1);
}

static __always_inline struct pt_regs *registers(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	if (!regs)
		count(COUNTER_REGISTERS_MISSING);
	return regs;
}

#endif
