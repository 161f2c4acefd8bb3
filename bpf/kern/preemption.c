// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Whether a kernel with PREEMPT_DYNAMIC preempts itself now: see exits.h. Its variable says so, but
 * has a symbol with CONFIG_KALLSYMS_ALL alone, and debugfs is closed by lockdown. On x86 there is
 * a second way: the call that is made wherever preemption becomes possible again goes by a
 * trampoline, which returns at once where the kernel does not preempt itself (static_call.h).
 */
#include "kernel.h"

enum preemption {
	PREEMPTION_UNKNOWN,
	PREEMPTION_OFF, /* none, or voluntary: where the kernel asks for it, never within a bpf(2) call's work */
	PREEMPTION_ON, /* full or lazy */
};

/* Addresses, once they are found. */
__u64 preempt_mode_at; /* the variable */
__u64 preempt_call_at; /* the trampoline */
__u64 return_at; /* where it jumps to when it returns at once */

#define FIND(name, at) (at || !bpf_kallsyms_lookup_name(name, sizeof(name), 0, &at))

static __always_inline enum preemption by_variable(void)
{
	static const char name[] = "preempt_dynamic_mode";
	enum { UNDEFINED = -1, NONE, VOLUNTARY }; /* kernel/sched/core.c */
	__u64 at = preempt_mode_at;
	__s32 mode;

	if (!FIND(name, at))
		return PREEMPTION_UNKNOWN;
	preempt_mode_at = at;
	if (bpf_probe_read_kernel(&mode, sizeof(mode), (void *)at) || mode == UNDEFINED)
		return PREEMPTION_UNKNOWN;
	return mode == NONE || mode == VOLUNTARY ? PREEMPTION_OFF : PREEMPTION_ON;
}

#if defined(__TARGET_ARCH_x86)
#define RETURNS_BY(symbol)                                         \
	({                                                         \
		static const char name[] = symbol;                 \
		__u64 at = 0;                                      \
		FIND(name, at) && at == target;                    \
	})

static __always_inline enum preemption by_call(void)
{
	static const char trampoline[] = "__SCT__preempt_schedule", on[] = "preempt_schedule_thunk";
	enum { RET = 0xc3, JMP = 0xe9, LENGTH = 5 };
	__u64 at = preempt_call_at, target, thunk = 0;
	__u8 code[LENGTH];
	__s32 distance;

	if (!FIND(trampoline, at))
		return PREEMPTION_UNKNOWN;
	preempt_call_at = at;
	if (bpf_probe_read_kernel(code, sizeof(code), (void *)at))
		return PREEMPTION_UNKNOWN;
	if (code[0] == RET)
		return PREEMPTION_OFF;
	if (code[0] != JMP)
		return PREEMPTION_UNKNOWN;
	__builtin_memcpy(&distance, &code[1], sizeof(distance));
	target = at + LENGTH + distance;
	if (target == return_at)
		return PREEMPTION_OFF;
	if (FIND(on, thunk) && target == thunk)
		return PREEMPTION_ON;
	if (RETURNS_BY("__x86_return_thunk") || RETURNS_BY("retbleed_return_thunk") ||
	    RETURNS_BY("srso_return_thunk") || RETURNS_BY("srso_alias_return_thunk") ||
	    RETURNS_BY("its_return_thunk")) {
		return_at = target;
		return PREEMPTION_OFF;
	}
	return PREEMPTION_UNKNOWN;
}
#else
static __always_inline enum preemption by_call(void)
{
	return PREEMPTION_UNKNOWN;
}
#endif

/* Returns an enum preemption. */
SEC("syscall")
int preempts(void *ctx)
{
	enum preemption is = by_variable();

	return is ?: by_call();
}
