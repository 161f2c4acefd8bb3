// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The one program that every exit of a system call passes, where the kernel can preempt itself:
 * see exits.h.
 */
#include "exits.h"
#include "run.h"

/* By number of the call. Filled by the loader before sys_exit is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_CALLS);
	__type(key, __u32);
	__type(value, __u32);
} at_exit SEC(".maps");

/* A bit for each call that has one: most have none, and cost the less. Set by the loader. */
const volatile __u64 watched_calls[MAX_CALLS / 64] = {};

/* Whether the call that a task is in is one of the native ABI: the numbers are. */
static __always_inline bool native_call(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return !(READ(struct task_struct, task, thread_info.status) & TS_COMPAT);
#elif defined(__TARGET_ARCH_arm64)
	return !(READ(struct task_struct, task, thread_info.flags) & _TIF_32BIT);
#endif
}

SEC("raw_tp/sys_exit")
int sys_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 number = call_number((void *)ctx->args[0]);
	struct run *run;
	__u64 id;

	if (number >= MAX_CALLS || !(watched_calls[number / 64] >> (number % 64) & 1))
		return 0;
	run = current_run(&id);
	if (!run || !run->armed || !native_call(bpf_get_current_task_btf()))
		return 0;
	bpf_tail_call(ctx, &at_exit, number);
	return 0;
}
