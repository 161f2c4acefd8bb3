// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * File opens, seen where the system call returns. A call that seccomp refused is seen
 * as well: the exit tracepoint fires for it although the entry one does not.
 */
#include "run.h"
#include "path.h"

/* The record under construction, one for each CPU: too large for the stack. Written
 * and read by the open programs only, which run with preemption off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct open_record);
} open_records SEC(".maps");

static __always_inline struct file *file_of(struct task_struct *task, __u32 fd)
{
	struct files_struct *files = READ(struct task_struct, task, files);
	struct fdtable *table = READ(struct files_struct, files, fdt);
	struct file **slots = READ(struct fdtable, table, fd);
	struct file *file = NULL;

	if (fd < READ(struct fdtable, table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	return file;
}

/* flags are the caller's; of these only what the file does not remember is used when
 * the open succeeded. */
static __always_inline void opened(__u64 id, struct run *run, struct task_struct *task,
				   long result, const void *name, __u32 flags)
{
	enum { FORGOTTEN = O_CREAT | O_EXCL | O_TRUNC };
	__u32 zero = 0;
	struct open_record *record = bpf_map_lookup_elem(&open_records, &zero);
	struct file *file = NULL;
	struct open_event *event;
	__u32 len, marks = 0;

	if (!record) {
		lose(run, EVENT_OPEN);
		count(COUNTER_SCRATCH_MISSING);
		return;
	}
	event = &record->event;
	if (result >= 0) {
		file = file_of(task, result);
		if (!file)
			count(COUNTER_DESCRIPTOR_GONE);
	}
	if (file) {
		flags = READ(struct file, file, f_flags) | (flags & FORGOTTEN);
		len = file_path(task, file, record->path, &marks);
	} else {
		long n = bpf_probe_read_user_str(record->path, PATH_CAP, name);

		marks = PATH_UNRESOLVED;
		if (n < 1 || n > PATH_CAP) {
			/* A bad address is an answer of its own; anything else is a gap. */
			if (result != -14)
				count(COUNTER_STRING_FAULT);
			marks |= PATH_TRUNCATED;
			n = 1;
		}
		if (n == PATH_CAP)
			marks |= PATH_TRUNCATED;
		len = n - 1;
	}
	describe(&event->head.who, task);
	event->result = result;
	event->flags = flags;
	event->marks = marks;
	event->path_len = len;
	if (len > sizeof(record->path))
		len = sizeof(record->path);
	send(id, run, &event->head, sizeof(*event) + len, EVENT_OPEN);
}

static __always_inline struct pt_regs *registers(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	if (!regs)
		count(COUNTER_REGISTERS_MISSING);
	return regs;
}

SEC("tracepoint/syscalls/sys_exit_openat")
int exit_openat(struct syscall_trace_exit *ctx)
{
	long result = ctx->ret;
	struct task_struct *task;
	struct pt_regs *regs;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	if (regs)
		opened(id, run, task, result, (void *)ARG2(regs), ARG3(regs));
	else
		lose(run, EVENT_OPEN);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_openat2")
int exit_openat2(struct syscall_trace_exit *ctx)
{
	long result = ctx->ret;
	struct task_struct *task;
	struct pt_regs *regs;
	struct run *run;
	__u64 flags = 0;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	if (!regs) {
		lose(run, EVENT_OPEN);
		return 0;
	}
	/* struct open_how begins with its flags. */
	if (bpf_probe_read_user(&flags, sizeof(flags), (void *)ARG3(regs)) && result != -14)
		count(COUNTER_HOW_FAULT);
	opened(id, run, task, result, (void *)ARG2(regs), flags);
	return 0;
}

#if defined(__TARGET_ARCH_x86)
SEC("tracepoint/syscalls/sys_exit_open")
int exit_open(struct syscall_trace_exit *ctx)
{
	long result = ctx->ret;
	struct task_struct *task;
	struct pt_regs *regs;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	if (regs)
		opened(id, run, task, result, (void *)ARG1(regs), ARG2(regs));
	else
		lose(run, EVENT_OPEN);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_creat")
int exit_creat(struct syscall_trace_exit *ctx)
{
	long result = ctx->ret;
	struct task_struct *task;
	struct pt_regs *regs;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	if (regs)
		opened(id, run, task, result, (void *)ARG1(regs), O_CREAT | O_WRONLY | O_TRUNC);
	else
		lose(run, EVENT_OPEN);
	return 0;
}
#endif
