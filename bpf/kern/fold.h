/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Repeats of one act. A thread that does the same again and again gets one record for the
 * first time, and then one a second that says how often. Acts are the same when their
 * records are, byte for byte, but for number and time: there is no key that could collide.
 *
 * The acts remembered are in the thread's own storage, which nobody else writes: there is
 * nothing to lock, and no run can push out what another's have in it.
 */
#ifndef PROCTOR_FOLD_H
#define PROCTOR_FOLD_H

#include "run.h"

enum fold_limits {
	FOLD_CAP = 256, /* bytes: a larger record is not remembered */
	FOLD_SLOTS = 4, /* acts remembered, of a thread */
	FOLD_WORDS = FOLD_CAP / 8,
	FOLD_SKIP = 2, /* words of struct event that are number and time */
};

#define FOLD_EVERY 1000000000ULL /* ns: how long a count may be held back from a live reader */

struct fold {
	__u64 mark; /* of the act, given by its program: another one's act is another */
	struct repeat repeat; /* count 0: the act was sent and not repeated since */
	union {
		struct event event; /* size 0: nothing is remembered */
		__u64 words[FOLD_WORDS];
	};
};

struct folds {
	__u64 last; /* ns on the boot clock: when the thread's last act was recorded */
	__u64 next; /* slot to be used for the next act that is new */
	struct fold slots[FOLD_SLOTS];
};

/* Written and read by every program that sends acts of the current task. Freed with the
 * thread, whose counts the exit program has sent before. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct folds);
} folds SEC(".maps");

static __always_inline bool same(const struct fold *fold, const __u64 *words, __u64 size, __u64 mark)
{
	__u32 i;

	if (fold->mark != mark || fold->event.size != size)
		return false;
	for (i = FOLD_SKIP; i < FOLD_WORDS; i++) {
		if (i * 8 >= size)
			break;
		if (fold->words[i] != words[i])
			return false;
	}
	return true;
}

/* Sends how often a remembered act was repeated, if it was. It stays remembered. */
static __always_inline void flush(__u64 id, struct run *run, struct fold *fold)
{
	enum event_kind kind = fold->event.kind;
	__u64 size = fold->event.size;

	if (!fold->repeat.count)
		return;
	if (kind >= EVENT_KINDS)
		kind = EVENT_NONE;
	if (size > FOLD_CAP)
		size = FOLD_CAP;
	emit(id, run, &fold->event, &fold->repeat, sizeof(fold->repeat) + size, kind);
	fold->repeat.count = 0;
}

/* Like send, for an act of the current task. mark is a number that the act's record decides;
 * it spares comparing most that differ. Up to the next multiple of 8, the bytes behind the
 * record are there and zero. */
static __always_inline __u64 send_folding(__u64 id, struct run *run, struct event *event, __u64 size,
					  enum event_kind kind, __u64 mark, bool folding)
{
	const __u64 *words = (const __u64 *)event;
	struct folds *all;
	struct fold *fold;
	__u64 seq;
	__u32 i;

	if (!folding)
		return send(id, run, event, size, kind);
	all = bpf_task_storage_get(&folds, bpf_get_current_task_btf(), NULL,
				   BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!all) {
		count(COUNTER_FOLD_MISSING);
		return send(id, run, event, size, kind);
	}
	all->last = bpf_ktime_get_boot_ns();
	if (size > FOLD_CAP)
		return send(id, run, event, size, kind);
	event->kind = kind;
	event->size = size;
	event->time = all->last;
	for (i = 0; i < FOLD_SLOTS; i++) {
		fold = &all->slots[i];
		if (!same(fold, words, size, mark))
			continue;
		if (!fold->repeat.count)
			fold->repeat.first = event->time;
		fold->repeat.count++;
		fold->event.time = event->time;
		__sync_fetch_and_add(&run->folded, 1);
		if (event->time - fold->repeat.first >= FOLD_EVERY)
			flush(id, run, fold);
		return fold->repeat.of;
	}
	fold = &all->slots[all->next % FOLD_SLOTS];
	all->next++;
	flush(id, run, fold);
	fold->event.size = 0;
	seq = emit(id, run, event, event, size, kind);
	if (!seq)
		return 0;
	for (i = FOLD_SKIP; i < FOLD_WORDS; i++) {
		if (i * 8 >= size)
			break;
		fold->words[i] = words[i];
	}
	fold->repeat.of = seq;
	fold->mark = mark;
	return seq;
}

static __always_inline __u64 send_act(__u64 id, struct run *run, struct event *event, __u64 size,
				      enum event_kind kind, __u64 mark)
{
	return send_folding(id, run, event, size, kind, mark, true);
}

/* Sends what the current thread's storage holds back. */
static __always_inline void flush_all(__u64 id, struct run *run)
{
	struct folds *all = bpf_task_storage_get(&folds, bpf_get_current_task_btf(), NULL, 0);
	__u32 i;

	if (!all)
		return;
	for (i = 0; i < FOLD_SLOTS; i++)
		flush(id, run, &all->slots[i]);
}

#endif
