/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Descriptors that a second thread exchanges between the moment an open puts a file there
 * and the moment its program looks. Only threads that share a descriptor table can; for
 * them, an open is in doubt
 *
 *  - when no file is there any more;
 *  - when the file there is what a dup2 or dup3 put at its number since the thread's last act,
 *    or when such a call is found, as it returns, to have put there what an open has been
 *    recorded with;
 *  - when the file there is not just the open's own (another descriptor refers to it), or
 *    was recorded a moment ago as what another thread's open by another name put at that
 *    number, and the caller's name is not, byte for byte, the path that was found.
 *
 * What is left is an exchange by close and open, or by close and a descriptor that was sent,
 * that hits the instant and whose file has no other reference.
 */
#ifndef PROCTOR_RACED_H
#define PROCTOR_RACED_H

#include "fold.h"
#include "path.h"

enum raced_limits {
	SLOTS_KEPT = 16384, /* descriptors remembered, of all runs */
	VOUCH_CAP = 256, /* bytes: a longer name vouches for nothing */
};

#define SLOT_AGE 1000000000ULL /* ns after which what an open was recorded with is history */
#define SLOT_MOMENT 5000ULL /* ns that another thread's open can be old and still meet this one */

/* A descriptor in a table that is shared. */
struct slot {
	__u64 files;
	__u64 fd;
};

struct slot_use {
	__u64 opened; /* ns on the boot clock: when an open was recorded */
	__u64 swapped; /* when a dup2 or dup3 returned */
	__u64 swapped_file; /* what it had put there */
	__u64 file; /* what the open was recorded with, as are the next two */
	__u64 inode;
	__u64 seq;
	__u64 name; /* hash of the caller's */
	__u32 opener; /* host's thread id */
	__u32 swapper;
};

/* Written by the programs at the exits of opens and dups. LRU: what is pushed out had
 * better be older than a system call takes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SLOTS_KEPT);
	__type(key, struct slot);
	__type(value, struct slot_use);
} slots SEC(".maps");

static __always_inline bool shares_table(struct task_struct *task, struct slot *slot)
{
	struct files_struct *files = READ(struct task_struct, task, files);

	slot->files = (__u64)files;
	return READ(struct files_struct, files, count.counter) > 1;
}

/* Whether nothing but the slot refers to the file. */
static __always_inline bool one_reference(struct file *file)
{
	struct file___ref *counted = (void *)file;

	/* Since 6.13 the count starts from 0 for the first reference. */
	if (bpf_core_field_exists(counted->f_ref))
		return BPF_CORE_READ(counted, f_ref.refcnt.counter) == 0;
	return BPF_CORE_READ((struct file___count *)file, f_count.counter) == 1;
}

/* What the caller gave as a name, now. */
struct given {
	union {
		__u8 bytes[VOUCH_CAP];
		__u64 words[VOUCH_CAP / 8];
	};
	long size; /* with its NUL; less than 1: could not be read */
	__u64 hash; /* tells names apart that nobody chose to be taken for each other */
};

/* One for each CPU: too large for the stack. Written and read by the open programs, which
 * run with preemption off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct given);
} givens SEC(".maps");

static __always_inline struct given *read_given(const void *name)
{
	__u32 zero = 0, i;
	struct given *given = bpf_map_lookup_elem(&givens, &zero);

	if (!given) {
		count(COUNTER_SCRATCH_MISSING);
		return NULL;
	}
	__builtin_memset(given, 0, sizeof(*given));
	given->size = bpf_probe_read_user_str(given->bytes, sizeof(given->bytes), name);
	given->hash = 0xcbf29ce484222325; /* FNV-1a, of words */
	for (i = 0; i < VOUCH_CAP / 8; i++) {
		if ((long)i * 8 >= given->size)
			break;
		given->hash = (given->hash ^ given->words[i]) * 0x100000001b3;
	}
	return given;
}

/* Whether the path that was found is what the caller gave. */
static __always_inline bool vouches(const struct given *given, const __u8 *path, __u32 len)
{
	long n = given->size;
	__u32 i;

	if (n < 2 || n >= VOUCH_CAP || n - 1 != len)
		return false;
	for (i = 0; i < VOUCH_CAP; i++) {
		if (i >= n - 1)
			return true;
		if (path[i] != given->bytes[i])
			return false;
	}
	return false;
}

/* Whether another thread may have put the file where the current one's open left its own.
 * Called before the open is recorded. */
static __always_inline bool doubtful(struct task_struct *task, struct slot *slot, struct file *file,
				     __u64 inode, const struct given *given, const __u8 *path, __u32 len)
{
	struct folds *acts = bpf_task_storage_get(&folds, task, NULL, 0);
	struct slot_use *use = bpf_map_lookup_elem(&slots, slot);
	__u32 me = READ(struct task_struct, task, pid);
	__u64 since;

	since = acts && acts->last ? acts->last : READ(struct task_struct, task, start_boottime);
	if (use && use->swapper != me && use->swapped > since && use->swapped_file == (__u64)file)
		return true;
	if (one_reference(file) && !(use && use->opener != me && use->opened > since &&
				     bpf_ktime_get_boot_ns() - use->opened < SLOT_MOMENT &&
				     use->file == (__u64)file && use->inode == inode &&
				     use->name != given->hash))
		return false;
	return !vouches(given, path, len);
}

/* Remembers what an open was recorded with. */
static __always_inline void remember(struct task_struct *task, struct slot *slot, struct file *file,
				     __u64 inode, const struct given *given, __u64 seq)
{
	struct slot_use *use = bpf_map_lookup_elem(&slots, slot);
	struct slot_use fresh = {};

	if (!use)
		use = &fresh;
	use->file = (__u64)file;
	use->inode = inode;
	use->name = given->hash;
	use->seq = seq;
	use->opener = READ(struct task_struct, task, pid);
	use->opened = bpf_ktime_get_boot_ns();
	if (use == &fresh && bpf_map_update_elem(&slots, slot, &fresh, BPF_ANY))
		count(COUNTER_SLOT_MISSING);
}

#endif
