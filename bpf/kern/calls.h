/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a record of a refused call is made of. */
#ifndef PROCTOR_CALLS_H
#define PROCTOR_CALLS_H

#include <linux/audit.h>

#include "exits.h"
#include "run.h"

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

#endif
