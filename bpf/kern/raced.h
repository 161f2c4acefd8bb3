/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Descriptors that a second thread exchanges between the moment an open puts a file there
 * and the moment its program looks. Only threads that share a descriptor table can; for
 * them, an open is in doubt
 *
 *  - when no file is there any more;
 *  - when the file there is at another number of the table as well: what was opened just now is at one;
 *  - when the file there is what another's dup put at its number since the thread's last act (one
 *    to the lowest number, as honest threads make many: a moment ago, and the name that was given
 *    is not what is found), or when such a call (dup, dup2, dup3, fcntl) is found, as it returns, to
 *    have put there what an open has been recorded with;
 *  - when the file there was recorded a moment ago as what another thread's open by another name
 *    put at that number.
 *
 * What is left hits the instant and leaves the file at that number alone: an exchange by close and
 * open; by close and a dup to the lowest number, or a descriptor that was sent, whose other number is
 * given up before the look. References by other tables say nothing: every fork by another thread
 * makes them.
 */
#ifndef PROCTOR_RACED_H
#define PROCTOR_RACED_H

#include "fold.h"
#include "path.h"

enum raced_limits {
	SLOTS_KEPT = 32768, /* descriptors and files remembered, of all runs */
	GIVEN_CAP = 256, /* bytes of a name that tell it from another */
	NUMBERS_CHUNK = 64, /* of a table, read at once: the kernel makes tables of multiples of it */
	NUMBERS_CAP = 65536, /* looked through, of a table */
};

#define SLOT_AGE 1000000000ULL /* ns after which what an open was recorded with is history */
#define DUP_MOMENT 5000ULL /* ns likewise of a dup to the lowest number: these are common */
#define SLOT_MOMENT 5000ULL /* ns that another thread's open can be old and still meet this one */

/* A file at a descriptor in a table that is shared. */
struct slot {
	__u64 files;
	__u64 fd;
	__u64 file;
};

struct slot_use {
	__u64 opened; /* ns on the boot clock: when an open was recorded with it, as are the next */
	__u64 inode;
	__u64 seq;
	__u64 name; /* hash of the caller's */
	__u64 swapped; /* when a dup that put it there returned */
	__u64 swapped_inode;
	__u32 opener; /* host's thread id */
	__u32 swapper;
	__u32 to_lowest; /* the dup took the lowest number */
	__u32 unused;
};

/* Written by the programs at the exits of opens and dups. LRU: what is pushed out had
 * better be older than a system call takes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SLOTS_KEPT);
	__type(key, struct slot);
	__type(value, struct slot_use);
} slots SEC(".maps");

/* The entry of a slot, which is made if need be. */
static __always_inline struct slot_use *use_of(struct slot *slot)
{
	struct slot_use *use = bpf_map_lookup_elem(&slots, slot);
	struct slot_use fresh = {};

	if (use)
		return use;
	bpf_map_update_elem(&slots, slot, &fresh, BPF_NOEXIST);
	use = bpf_map_lookup_elem(&slots, slot);
	if (!use)
		count(COUNTER_SLOT_MISSING);
	return use;
}

static __always_inline __u64 inode_of(struct file *file)
{
	struct identity identity;

	identify(file, &identity);
	return identity.inode;
}

static __always_inline bool shares_table(struct task_struct *task, struct slot *slot)
{
	struct files_struct *files = READ(struct task_struct, task, files);

	slot->files = (__u64)files;
	return READ(struct files_struct, files, count.counter) > 1;
}

/* Whether nothing but one number refers to the file. */
static __always_inline bool one_reference(struct file *file)
{
	struct file___ref *counted = (void *)file;

	/* Since 6.13 the count starts from 0 for the first reference. */
	if (bpf_core_field_exists(counted->f_ref))
		return BPF_CORE_READ(counted, f_ref.refcnt.counter) == 0;
	return BPF_CORE_READ((struct file___count *)file, f_count.counter) == 1;
}

/* Files at some of a table's numbers. One for each CPU: too large for the stack. Written and read
 * by the open programs, which run with preemption off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[NUMBERS_CHUNK]);
} numbers SEC(".maps");

struct number_search {
	struct file **files;
	__u64 file;
	__u64 but; /* this number */
	bool found;
};

static long search_chunk(__u32 i, struct number_search *search)
{
	__u32 zero = 0, at = i * NUMBERS_CHUNK, k;
	__u64 *chunk = bpf_map_lookup_elem(&numbers, &zero);

	if (!chunk || bpf_probe_read_kernel(chunk, NUMBERS_CHUNK * sizeof(*chunk), &search->files[at])) {
		search->found = true; /* nobody knows */
		return 1;
	}
	for (k = 0; k < NUMBERS_CHUNK; k++) {
		if (chunk[k] == search->file && at + k != search->but) {
			search->found = true;
			return 1;
		}
	}
	return 0;
}

/* Whether the file is at another number of the task's table than this, or the table is too large to
 * tell. Global: verified once, by itself. */
__noinline int at_another_number(__u64 file, __u64 number)
{
	struct number_search search = { .file = file, .but = number };
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table;
	__u32 count;

	if (one_reference((struct file *)file))
		return false;
	table = BPF_CORE_READ(task, files, fdt);
	count = READ(struct fdtable, table, max_fds);
	if (count > NUMBERS_CAP)
		return true;
	search.files = READ(struct fdtable, table, fd);
	bpf_loop(count / NUMBERS_CHUNK, search_chunk, &search, 0);
	return search.found;
}

/* What the caller gave as a name, now. */
struct given {
	union {
		__u8 bytes[GIVEN_CAP];
		__u64 words[GIVEN_CAP / 8];
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
	for (i = 0; i < GIVEN_CAP / 8; i++) {
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

	if (n < 2 || n >= GIVEN_CAP || n - 1 != len)
		return false;
	for (i = 0; i < GIVEN_CAP; i++) {
		if (i >= n - 1)
			return true;
		if (path[i] != given->bytes[i])
			return false;
	}
	return false;
}

/* When the current thread last did something that is recorded: an open of its own began later. */
static __always_inline __u64 last_act(struct task_struct *task)
{
	struct folds *acts = bpf_task_storage_get(&folds, task, NULL, 0);

	return acts && acts->last ? acts->last : READ(struct task_struct, task, start_boottime);
}

/* Whether less than so long passed from then to when the descriptor was looked at: reading the path
 * takes longer than that, if it is a long one. Later is not too long ago. */
static __always_inline bool moment(__u64 looked, __u64 then, __u64 moment)
{
	return (__s64)(looked - then) < (__s64)moment;
}

/* Whether a dup by another thread, since then, put the file there. */
static __always_inline bool swapped_in(struct slot_use *use, __u64 inode, __u32 me, __u64 since, __u64 looked,
				       bool vouched)
{
	/* An addition that is asked for its result is a full barrier: what was written before is seen. */
	__u64 swapped = __sync_fetch_and_add(&use->swapped, 0);

	/* Of another inode it is a later file in the same memory. */
	return use->swapper != me && swapped > since && use->swapped_inode == inode &&
	       (!use->to_lowest || (!vouched && moment(looked, swapped, DUP_MOMENT)));
}

/* Whether another thread may have put the file where the current one's open left its own.
 * Called before the open is recorded. */
static __always_inline bool doubtful(struct slot *slot, __u64 inode, const struct given *given, __u32 me,
				     __u64 since, __u64 looked, bool vouched)
{
	struct slot_use *use = bpf_map_lookup_elem(&slots, slot);

	if (!use)
		return false;
	if (swapped_in(use, inode, me, since, looked, vouched))
		return true;
	return use->opener != me && use->opened > since && moment(looked, use->opened, SLOT_MOMENT) &&
	       use->inode == inode && use->name != given->hash;
}

/* Remembers what an open was recorded with. Returns whether it is found only now that a dup put the
 * file there: its program looked for an open before this was remembered. */
static __always_inline bool remember(struct slot *slot, __u64 inode, const struct given *given, __u64 seq,
				     __u32 me, __u64 since, __u64 looked, bool vouched)
{
	struct slot_use *use = use_of(slot);

	if (!use)
		return false;
	use->inode = inode;
	use->name = given->hash;
	use->opener = me;
	use->opened = bpf_ktime_get_boot_ns();
	use->seq = seq;
	return swapped_in(use, inode, me, since, looked, vouched);
}

/* Says that what an earlier event names may be another. */
static __always_inline void send_raced(__u64 id, struct run *run, struct task_struct *task, __u64 of)
{
	struct raced_event event = { .of = of };

	__sync_fetch_and_add(&run->raced, 1);
	describe(&event.head.who, task);
	send(id, run, &event.head, sizeof(event), EVENT_RACED);
}

#endif
