// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
#include "exits.h"
#include "raced.h"

/* A dup2 or dup3 in a table that is shared: see raced.h. */
static __always_inline int duplicated(long ret)
{
	struct raced_event event = {};
	struct slot_use *use, fresh = {};
	struct task_struct *task;
	struct slot slot = {};
	struct file *file, *source = NULL;
	struct pt_regs *regs;
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
	slot.fd = ret;
	now = bpf_ktime_get_boot_ns();
	/* What the call has put there, as long as nobody has put something else. */
	file = file_of(task, slot.fd);
	regs = registers(task);
	if (regs)
		source = file_of(task, ARG1(regs));
	use = bpf_map_lookup_elem(&slots, &slot);
	if (!use) {
		fresh.swapped = now;
		fresh.swapped_file = (__u64)(source ?: file);
		fresh.swapper = READ(struct task_struct, task, pid);
		if (bpf_map_update_elem(&slots, &slot, &fresh, BPF_ANY))
			count(COUNTER_SLOT_MISSING);
		return 0;
	}
	use->swapped = now;
	use->swapped_file = (__u64)(source ?: file);
	use->swapper = READ(struct task_struct, task, pid);
	/* If an open was recorded with what came by the dup, it was looked at too late. */
	if (!use->seq || (use->file != (__u64)file && use->file != (__u64)source) || use->opener == use->swapper ||
	    now - use->opened > SLOT_AGE)
		return 0;
	event.of = use->seq;
	use->seq = 0;
	__sync_fetch_and_add(&run->raced, 1);
	describe(&event.head.who, task);
	send(id, run, &event.head, sizeof(event), EVENT_RACED);
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
