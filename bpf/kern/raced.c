// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
#include "calls.h"
#include "exits.h"
#include "raced.h"

/* A dup has put a file at a number. origin is what an open at the number it came from was recorded
 * with, or NULL; kept says that the file is there still, so that an open which was taken in by the
 * dup has found it at two numbers. */
static __always_inline void swapped(__u64 id, struct run *run, struct task_struct *task, struct slot *slot,
				    struct slot_use *origin, bool kept, __u64 now)
{
	struct slot_use *use = use_of(slot);
	__u64 inode = inode_of((struct file *)slot->file);
	__u64 seq;

	if (!use)
		return;
	use->swapper = READ(struct task_struct, task, pid);
	use->swapped_inode = inode;
	use->swapped = now;
	if (kept)
		return;
	/* If an open was recorded with it, that was looked at too late. The addition is a barrier, as in
	 * remember. */
	seq = __sync_fetch_and_add(&use->seq, 0);
	if (!seq || use->opener == use->swapper || now - use->opened > SLOT_AGE)
		return;
	/* Not if it is a later file in the same memory: another, or opened after the one recorded. */
	if (use->inode != inode)
		return;
	if (origin && origin->opened > use->opened)
		return;
	use->seq = 0;
	send_raced(id, run, task, seq);
}

/* A call that has put a file at another number, in a table that is shared: see raced.h. */
static __always_inline int duplicated(long ret)
{
	struct slot slot = {}, from = {};
	struct slot_use *origin = NULL;
	struct task_struct *task;
	struct pt_regs *regs;
	struct file *file;
	struct run *run;
	__u64 now, id;

	if (ret < 0)
		return 0;
	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	if (!shares_table(task, &slot))
		return 0;
	run->shares = 1;
	now = bpf_ktime_get_boot_ns();
	slot.fd = ret;
	regs = registers(task);
	if (regs) {
		from.files = slot.files;
		from.fd = ARG1(regs);
		from.file = (__u64)file_of(task, from.fd);
		origin = bpf_map_lookup_elem(&slots, &from);
	}
	file = file_of(task, slot.fd);
	if (from.file) {
		slot.file = from.file;
		swapped(id, run, task, &slot, origin, (__u64)file == from.file, now);
	}
	/* The number that it came from may be another's by now, but then this one is not yet. */
	if (file && (__u64)file != from.file) {
		slot.file = (__u64)file;
		swapped(id, run, task, &slot, NULL, false, now);
	}
	return 0;
}

AT_EXIT(dup3, dup3)
{
	return duplicated(ret);
}

#if defined(__TARGET_ARCH_x86)
AT_EXIT(dup2, dup2)
{
	return duplicated(ret);
}
#endif

AT_EXIT(dup, dup)
{
	return duplicated(ret);
}

AT_EXIT(fcntl, fcntl)
{
	struct pt_regs *regs;
	struct run *run;
	__u32 command;
	__u64 id;

	if (ret < 0)
		return refused(ret, nr, false, false);
	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	regs = registers(bpf_get_current_task_btf());
	if (!regs)
		return 0; /* counted */
	command = ARG2(regs);
	if (command != F_DUPFD && command != F_DUPFD_CLOEXEC)
		return 0;
	return duplicated(ret);
}

/* What was put at a number is gone from there when that is found empty after a close. The time is from
 * before the look: what comes there later is noted later. */
AT_EXIT(close, close)
{
	struct slot number = {};
	struct task_struct *task;
	struct slot_use *use;
	struct pt_regs *regs;
	struct run *run;
	__u64 now, id;

	run = current_run(&id);
	if (!run || !run->shares)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	if (!regs)
		return 0; /* counted */
	number.files = (__u64)READ(struct task_struct, task, files);
	number.fd = (__u32)ARG1(regs);
	now = bpf_ktime_get_boot_ns();
	if (file_of(task, number.fd))
		return 0;
	use = use_of(&number);
	if (use)
		use->empty = now;
	return 0;
}
