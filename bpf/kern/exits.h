/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs at the exits of system calls, each in two forms of which the loader takes one:
 *
 *  - exit_NAME is at the tracepoint of its own call, and costs no other call anything. But
 *    the kernel passes such a program over while a bpf(2) call is in the middle of its work
 *    on the same processor (trace_call_bpf, bpf_prog_active). Where the kernel can preempt
 *    itself, that call may be another task's, and whatever runs in its place is not seen.
 *  - raw_NAME is called by sys_exit (exits.c), which is at the one raw tracepoint of all
 *    exits and is never passed over, at a price for every call of the host.
 */
#ifndef PROCTOR_EXITS_H
#define PROCTOR_EXITS_H

#include "kernel.h"

static __always_inline __u32 call_number(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return READ(struct pt_regs, regs, orig_ax);
#elif defined(__TARGET_ARCH_arm64)
	return READ(struct pt_regs, regs, syscallno);
#endif
}

/* Defines both forms of a program whose tracepoint is that of call, unless the loader knows of
 * others. Its body follows, which has ret, what the call returns, and nr, its number. */
#define AT_EXIT(name, call)                                                                \
	static __always_inline int name##_at_exit(long ret, __u32 nr);                     \
	SEC("tracepoint/syscalls/sys_exit_" #call)                                         \
	int exit_##name(struct syscall_trace_exit *ctx)                                    \
	{                                                                                  \
		return name##_at_exit(ctx->ret, ctx->nr);                                  \
	}                                                                                  \
	SEC("raw_tp/sys_exit")                                                             \
	int raw_##name(struct bpf_raw_tracepoint_args *ctx)                                \
	{                                                                                  \
		return name##_at_exit(ctx->args[1], call_number((void *)ctx->args[0]));    \
	}                                                                                  \
	static __always_inline int name##_at_exit(long ret, __u32 nr)

#endif
