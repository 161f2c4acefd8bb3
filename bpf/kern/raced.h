/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Descriptors that a second thread exchanges between the moment an open puts a file there
 * and the moment its program looks. An open is in doubt
 *
 *  - when no file is there any more, or one of a kind that no open returns;
 *  - when the file there is at another number of the table as well: what was opened just now is at one;
 *  - when the file there is what another thread's dup (dup, dup2, dup3, fcntl) put at its number since
 *    the thread's last act, or another's open, and the number was not seen empty after a close since;
 *  - when such a dup is found, as it returns, to have put there what an open has been recorded with.
 *
 * What is left hits the instant: an exchange by close and a descriptor that was sent, whose other
 * numbers are given up before the look, or a new pipe. References by other tables say nothing: every
 * fork by another thread makes them.
 */
#ifndef PROCTOR_RACED_H
#define PROCTOR_RACED_H

#include "fold.h"
#include "path.h"

enum raced_limits {
	SLOTS_KEPT = 32768, /* descriptors and files remembered, of all runs */
	NUMBERS_CHUNK = 64, /* of a table, read at once: the kernel makes tables of multiples of it */
	NUMBERS_CAP = 65536, /* looked through, of a table */
};

#define SLOT_AGE 1000000000ULL /* ns after which what an open was recorded with is history */

/* A file at a descriptor in a table that is shared; without a file, the descriptor's number. */
struct slot {
	__u64 files;
	__u64 fd;
	__u64 file;
};

/* Times are ns on the boot clock. */
struct slot_use {
	__u64 opened; /* when an open was recorded with it, as are the next */
	__u64 inode;
	__u64 seq;
	__u64 swapped; /* when a dup that put it there returned */
	__u64 swapped_inode;
	__u64 empty; /* of a number: when a close was the last to leave it so */
	__u64 opener; /* host's thread id */
	__u64 swapper;
};

/* Written by the programs at the exits of opens, dups and closes. LRU: what is pushed out had
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
		return READ(struct file___ref, counted, f_ref.refcnt.counter) == 0;
	return READ(struct file___count, file, f_count.counter) == 1;
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

/* Whether a file with several references is at another number of the task's table than this, or the
 * table is too large to tell. Global: verified once, by itself. */
__noinline int at_another_number(__u64 file, __u64 number)
{
	struct number_search search = { .file = file, .but = number };
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table;
	__u32 count;

	table = BPF_CORE_READ(task, files, fdt);
	count = READ(struct fdtable, table, max_fds);
	if (count > NUMBERS_CAP)
		return true;
	search.files = READ(struct fdtable, table, fd);
	bpf_loop(count / NUMBERS_CHUNK, search_chunk, &search, 0);
	return search.found;
}

/* When the current thread last did something that is recorded: an open of its own began later. */
static __always_inline __u64 last_act(struct task_struct *task)
{
	struct folds *acts = bpf_task_storage_get(&folds, task, NULL, 0);

	return acts && acts->last ? acts->last : READ(struct task_struct, task, start_boottime);
}

/* Whether the slot's number was found empty since then: what was there has gone, and what is there has
 * come by itself. */
static __always_inline bool gone_since(const struct slot *slot, __u64 then)
{
	struct slot number = { .files = slot->files, .fd = slot->fd };
	struct slot_use *use = bpf_map_lookup_elem(&slots, &number);

	return use && use->empty >= then;
}

/* Whether the file is there by a dup of another thread. */
static __always_inline bool swapped_in(const struct slot *slot, const struct slot_use *use, __u64 inode, __u32 me)
{
	/* Of another inode it is a later file in the same memory. */
	return use->swapped && use->swapper != me && use->swapped_inode == inode && !gone_since(slot, use->swapped);
}

/* Whether another thread may have put the file where the current one's open left its own. before is
 * what is known of the slot: called before the open is recorded. */
static __always_inline bool doubtful(struct task_struct *task, const struct slot *slot,
				     const struct slot_use *before, __u64 inode, __u32 me)
{
	if (swapped_in(slot, before, inode, me) && before->swapped > last_act(task))
		return true;
	return before->opener && before->opener != me && before->inode == inode &&
	       before->opened > last_act(task) && !gone_since(slot, before->opened);
}

/* Remembers what an open was recorded with. Returns whether another thread is found only now, unlike
 * before, to have put the file there: its program looked for an open before this was remembered. */
static __always_inline bool remember(const struct slot *slot, struct slot_use *use, __u64 inode,
				     const struct event *event, __u64 seq, __u32 me, const struct slot_use *before)
{
	__u64 opener;

	use->inode = inode;
	use->opened = event->time;
	use->seq = seq;
	/* An exchange is a full barrier: of two programs that meet, one sees what the other wrote. */
	opener = __sync_lock_test_and_set(&use->opener, me);
	return (opener != me && opener != before->opener) ||
	       (use->swapped != before->swapped && swapped_in(slot, use, inode, me));
}

/* Whether no open returns a file with such a path: a socket, or one of a kind that has neither name nor
 * place. By O_PATH one is had from /proc. */
static __always_inline bool not_opened(const struct path_part *path, const __u8 *data, __u32 flags)
{
	enum { ANONYMOUS = 0x09041934 }; /* ANON_INODE_FS_MAGIC */
	const struct pseudo *pseudo = (const void *)data;

	return path->marks & PATH_PSEUDO && !(flags & O_PATH) &&
	       (pseudo->magic == SOCKFS_MAGIC || pseudo->magic == ANONYMOUS);
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
