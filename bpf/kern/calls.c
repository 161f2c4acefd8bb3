// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * System calls that a box does not have. A call that seccomp refuses with an errno fires
 * its exit tracepoint, though not the one on entry; one of another ABI ends its thread with
 * SIGSYS, which processes.c sees too, where no signal is sent.
 */
#include "calls.h"

/* On the exit of every call that the box's seccomp profile does not let through as it is. */
AT_EXIT(refused, ptrace)
{
	return refused(ret, nr, false, false);
}

AT_EXIT(clone3, clone3)
{
	return refused(ret, nr, true, false);
}

/* On socket and socketpair: whatever the reason, the attempt is worth knowing. */
AT_EXIT(socket, socket)
{
	return refused(ret, nr, false, true);
}

/* A call of another ABI, or one that the code's own filter traps. */
SEC("tp_btf/signal_generate")
int signalled(__u64 *ctx)
{
	struct kernel_siginfo *info = (void *)ctx[1];
	struct task_struct *task = (void *)ctx[2];
	struct refused_event event = {};
	struct pt_regs *regs;
	struct run *run;
	__u64 id;

	/* SEND_SIG_NOINFO and SEND_SIG_PRIV are no pointers. */
	if ((int)ctx[0] != SIGSYS || (unsigned long)info < 4096)
		return 0;
	run = current_run(&id);
	if (!run || !run->armed || task != bpf_get_current_task_btf() ||
	    READ(struct kernel_siginfo, info, si_code) != SYS_SECCOMP)
		return 0;
	/* In a union, into which READ's typed load can't go. */
	event.number = BPF_CORE_READ(info, _sifields._sigsys._syscall);
	event.abi = BPF_CORE_READ(info, _sifields._sigsys._arch);
	event.signal = SIGSYS;
	regs = registers(task);
	/* The code can send itself the like, but not out of the call that it names. */
	if (!regs || call_number(regs) != event.number)
		return 0;
	call_args(&event, regs);
	describe(&event.head.who, task);
	send(id, run, &event.head, sizeof(event), EVENT_REFUSED);
	return 0;
}
