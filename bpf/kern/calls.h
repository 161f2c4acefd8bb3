/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a record of a refused call is made of, and what is one. */
#ifndef PROCTOR_CALLS_H
#define PROCTOR_CALLS_H

#include <linux/audit.h>

#include "exits.h"
#include "fold.h"
#include "path.h"

#if defined(__TARGET_ARCH_x86)
#define NATIVE_ABI AUDIT_ARCH_X86_64
#elif defined(__TARGET_ARCH_arm64)
#define NATIVE_ABI AUDIT_ARCH_AARCH64
#endif

static __always_inline void call_args(struct refused_event *event, struct pt_regs *regs)
{
	event->args[0] = ARG1(regs);
	event->args[1] = ARG2(regs);
	event->args[2] = ARG3(regs);
	event->args[3] = ARG4(regs);
	event->args[4] = ARG5(regs);
	event->args[5] = ARG6(regs);
}

/* Number and ABI of the call that a task is in, when that may not be the native one. */
static __always_inline void foreign_call(struct refused_event *event, struct task_struct *task,
					 struct pt_regs *regs)
{
	event->abi = NATIVE_ABI;
	event->number = call_number(regs);
#if defined(__TARGET_ARCH_x86)
	if (READ(struct task_struct, task, thread_info.status) & TS_COMPAT) {
		event->abi = AUDIT_ARCH_I386;
		event->args[0] = READ(struct pt_regs, regs, bx);
		event->args[1] = READ(struct pt_regs, regs, cx);
		event->args[2] = READ(struct pt_regs, regs, dx);
		event->args[3] = READ(struct pt_regs, regs, si);
		event->args[4] = READ(struct pt_regs, regs, di);
		event->args[5] = READ(struct pt_regs, regs, bp);
		return;
	}
#endif
	call_args(event, regs);
}

/* clone3's flags lie in memory, and libraries try it before clone for every thread. It is
 * worth a record when it asks for what clone would be refused. */
static __always_inline bool plain_clone3(struct pt_regs *regs)
{
	enum { NAMESPACES = 0x7e020080, INTO_CGROUP_HIGH = 0x2 };
	__u64 flags = 0;

	if (bpf_probe_read_user(&flags, sizeof(flags), (void *)ARG1(regs)))
		return false;
	return !(flags & NAMESPACES) && !(flags >> 32 & INTO_CGROUP_HIGH);
}

/* Records a call that was refused; any says that every failure is one. */
static __always_inline int refused(long ret, __u32 nr, bool clone3, bool any)
{
	struct refused_event event = {};
	struct task_struct *task;
	struct pt_regs *regs;
	struct run *run;
	__u64 id;

	if (any ? ret >= 0 || ret < -4095 : ret != -EPERM && ret != -ENOSYS)
		return 0;
	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	if (!regs) {
		lose(run, EVENT_REFUSED);
		return 0;
	}
	if (clone3 && plain_clone3(regs))
		return 0;
	event.number = nr;
	event.abi = NATIVE_ABI;
	event.result = ret;
	call_args(&event, regs);
	describe(&event.head.who, task);
	send_act(id, run, &event.head, sizeof(event), EVENT_REFUSED, event.number);
	return 0;
}

#endif
