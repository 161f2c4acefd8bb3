// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Processes made, programs started, ends, and victims of the OOM killer. Threads are
 * not reported.
 */
#include "run.h"
#include "path.h"

/* Whether this kernel's sched_process_exit says that the whole thread group is dead.
 * Set by the loader from BTF; where it is false, the group's counter is looked at. */
const volatile bool exit_says_group_dead = true;

/* The exec record under construction, one for each CPU: too large for the stack, and for
 * a per-CPU map. Written and read by executed only, which runs with preemption off. The
 * loader sets the size to the number of possible CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exec_record);
} exec_records SEC(".maps");

struct group {
	__u64 start;
	__u64 tgid;
};

/* Thread groups whose end was reported, where two last threads can both find the
 * group's counter at zero. Written and read by exited. LRU: an entry matters only for the
 * moment between these two. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct group);
	__type(value, __u32);
} exited_groups SEC(".maps");

enum argv_limits {
	ARGV_CHUNK = 4096, /* read at a time: one page that is out costs no other */
};

struct argv_copy {
	unsigned long from;
	__u32 cpu; /* whose record it goes to */
	__u32 at; /* offset there */
	__u32 left;
};

static long copy_chunk(__u32 step, struct argv_copy *copy)
{
	struct exec_record *record = bpf_map_lookup_elem(&exec_records, &copy->cpu);
	__u32 at = copy->at;
	__u32 n = copy->left;

	if (n > ARGV_CHUNK)
		n = ARGV_CHUNK;
	if (!record || !n || at > sizeof(record->data) - ARGV_CHUNK)
		return 1;
	if (bpf_probe_read_user(&record->data[at], n, (void *)copy->from)) {
		count(COUNTER_ARGV_FAULT);
		return 1;
	}
	copy->from += n;
	copy->at += n;
	copy->left -= n;
	return 0;
}

/* Copies the command line that the kernel has just laid out to at in the CPU's record.
 * Returns the bytes copied. */
static __always_inline __u32 command_line(struct mm_struct *mm, __u32 cpu, __u32 at, __u32 *size)
{
	unsigned long start = READ(struct mm_struct, mm, arg_start);
	unsigned long full = READ(struct mm_struct, mm, arg_end) - start;
	struct argv_copy copy = { .from = start, .cpu = cpu, .at = at };

	copy.left = full > ARGV_CAP ? ARGV_CAP : full;
	*size = full > 0xffffffff ? 0xffffffff : full;
	bpf_loop(ARGV_CAP / ARGV_CHUNK, copy_chunk, &copy, 0);
	return copy.at - at;
}

SEC("tp_btf/sched_process_exec")
int executed(__u64 *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct exec_record *record;
	struct exec_event *event;
	struct task_struct *task;
	struct mm_struct *mm;
	struct file *file;
	struct run *run;
	__u32 size, len = 0, argc, marks = 0;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	record = bpf_map_lookup_elem(&exec_records, &cpu);
	if (!record) {
		lose(run, EVENT_EXEC);
		count(COUNTER_SCRATCH_MISSING);
		return 0;
	}
	task = bpf_get_current_task_btf();
	event = &record->event;
	describe(&event->head.who, task);
	mm = READ(struct task_struct, task, mm);
	file = READ(struct mm_struct, mm, exe_file);
	if (file) {
		len = file_path(task, file, record->data, &marks);
	} else {
		count(COUNTER_EXE_MISSING);
		marks = PATH_TRUNCATED;
	}
	if (len > sizeof(struct pseudo) + PATH_CAP)
		len = sizeof(struct pseudo) + PATH_CAP;
	argc = command_line(mm, cpu, len, &event->argv_size);
	event->marks = marks;
	event->file_len = len;
	event->argv_len = argc;
	size = sizeof(*event) + len + argc;
	if (size > sizeof(*record))
		size = sizeof(*record);
	send(id, run, &event->head, size, EVENT_EXEC);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int forked(__u64 *ctx)
{
	struct task_struct *child = (void *)ctx[1];
	struct fork_event event = {};
	struct task_struct *task;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	if (READ(struct task_struct, child, tgid) == READ(struct task_struct, task, tgid))
		return 0;
	describe(&event.head.who, task);
	/* As the parent sees it. */
	event.child = pid_number(READ(struct task_struct, child, thread_pid),
				 READ(struct pid, group_pid(task), level));
	event.child_host = READ(struct task_struct, child, tgid);
	send(id, run, &event.head, sizeof(event), EVENT_FORK);
	return 0;
}

/* Whether the caller is the last of its thread group, and the first to say so. */
static __always_inline bool last_of_group(__u64 *ctx, struct task_struct *task,
					  struct signal_struct *signal, struct task_struct *leader)
{
	struct group group = {};
	__u32 one = 1;

	if (exit_says_group_dead)
		return ctx[1] & 0xff;
	if (READ(struct signal_struct, signal, live.counter))
		return false;
	group.start = READ(struct task_struct, leader, start_boottime);
	group.tgid = READ(struct task_struct, task, tgid);
	switch (bpf_map_update_elem(&exited_groups, &group, &one, BPF_NOEXIST)) {
	case 0:
		return true;
	case -17: /* EEXIST */
		return false;
	}
	count(COUNTER_EXITED_FULL);
	return true;
}

SEC("tp_btf/sched_process_exit")
int exited(__u64 *ctx)
{
	struct exit_event event = {};
	struct task_struct *task, *leader;
	struct signal_struct *signal;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	leader = READ(struct task_struct, task, group_leader);
	signal = READ(struct task_struct, task, signal);
	if (!last_of_group(ctx, task, signal, leader))
		return 0;
	/* What wait(2) will tell the parent. */
	if (READ(struct signal_struct, signal, flags) & SIGNAL_GROUP_EXIT)
		event.status = READ(struct signal_struct, signal, group_exit_code);
	else
		event.status = READ(struct task_struct, leader, exit_code);
	describe(&event.head.who, task);
	/* The process ends, not the thread that happened to be its last. */
	event.head.who.tid = 0;
	send(id, run, &event.head, sizeof(event), EVENT_EXIT);
	return 0;
}

/* The victim need not be the current task, and is found by its own cgroup. */
SEC("tp_btf/mark_victim")
int victim_marked(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct css_set *set = READ(struct task_struct, task, cgroups);
	struct cgroup *cgroup = READ(struct css_set, set, dfl_cgrp);
	struct cgroup *ancestor = NULL;
	struct event event = {};
	struct run *run;
	__u64 id;

	if (READ(struct cgroup, cgroup, level) < (int)run_level)
		return 0;
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor), &cgroup->ancestors[run_level]);
	id = BPF_CORE_READ(ancestor, kn, id);
	run = bpf_map_lookup_elem(&runs, &id);
	if (!run)
		return 0;
	describe(&event.who, task);
	event.who.tid = 0;
	send(id, run, &event, sizeof(event), EVENT_OOM);
	return 0;
}
