// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Processes made, programs started, ends, and victims of the OOM killer. Threads are
 * not reported.
 */
#include "exits.h"
#include "fold.h"
#include "path.h"
#include "calls.h"

/* Whether this kernel's sched_process_exit says that the whole thread group is dead.
 * Set by the loader from BTF; where it is false, the group's counter is looked at. */
const volatile bool exit_says_group_dead = true;

/* Whether its mark_victim passes the victim. Set likewise; where it is false, the victim is
 * found by the number that is passed instead. */
const volatile bool victim_is_passed = true;

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

enum copy_limits {
	COPY_CHUNK = 4096, /* read at a time: one page that is out costs no other */
};

struct user_copy {
	unsigned long from;
	__u32 cpu; /* whose record it goes to */
	__u32 at; /* offset there */
	__u64 left; /* a whole register: of a half, Linux 6.1 forgets what bounds it when it is copied */
};

static long copy_chunk(__u32 step, struct user_copy *copy)
{
	struct exec_record *record = bpf_map_lookup_elem(&exec_records, &copy->cpu);
	__u32 at = copy->at;
	__u64 n = copy->left;

	if (n > COPY_CHUNK)
		n = COPY_CHUNK;
	if (!record || !n || at > sizeof(record->data) - COPY_CHUNK)
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

/* Copies what the kernel has just laid out from start to end, at most cap bytes, to at in
 * the CPU's record. Returns the bytes copied. */
static __always_inline __u32 copy_user(unsigned long start, unsigned long end, __u32 cap, __u32 cpu,
				       __u32 at, __u32 *size)
{
	unsigned long full = end - start;
	struct user_copy copy = { .from = start, .cpu = cpu, .at = at };

	copy.left = full > cap ? cap : full;
	*size = full > 0xffffffff ? 0xffffffff : full;
	bpf_loop(ARGV_CAP / COPY_CHUNK, copy_chunk, &copy, 0);
	return copy.at - at;
}

/* The number that a user namespace has for one of the kernel's, or the kernel's. */
static __always_inline __u32 inside(const struct uid_gid_map *map, __u32 number)
{
	struct uid_gid_extent extent;
	__u32 i;

	for (i = 0; i < MAP_EXTENTS; i++) {
		bpf_probe_read_kernel(&extent, sizeof(extent), &map->extent[i]);
		if (number - extent.lower_first < extent.count)
			return extent.first + (number - extent.lower_first);
	}
	return number;
}

static __always_inline void credentials(struct exec_event *event, struct task_struct *task)
{
	const struct cred *cred = READ(struct task_struct, task, cred);
	struct user_namespace *ns = READ(struct cred, cred, user_ns);

	event->uid = inside(&ns->uid_map, READ(struct cred, cred, uid.val));
	event->gid = inside(&ns->gid_map, READ(struct cred, cred, gid.val));
}

SEC("tp_btf/sched_process_exec")
int executed(__u64 *ctx)
{
	struct linux_binprm *bprm = (void *)ctx[2];
	__u32 cpu = bpf_get_smp_processor_id();
	struct exec_record *record;
	struct exec_event *event;
	struct task_struct *task;
	struct folds *acts;
	const char *name;
	struct mm_struct *mm;
	struct fs_struct *fs;
	struct file *file;
	struct run *run;
	__u64 at, id;
	long n;

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
	event->result = 0;
	event->file.marks = PATH_TRUNCATED;
	event->file.len = 0;
	event->script.marks = event->script.len = 0;
	describe(&event->head.who, task);
	credentials(event, task);
	mm = READ(struct task_struct, task, mm);
	file = READ(struct mm_struct, mm, exe_file);
	if (file)
		file_path(file, record->data, &event->file);
	else
		count(COUNTER_EXE_MISSING);
	at = event->file.len;
	at = at_most(at, PART_CAP);
	fs = READ(struct task_struct, task, fs);
	path_of(&fs->pwd, &record->data[at], &event->cwd);
	at += event->cwd.len;
	at = at_most(at, 2 * PART_CAP);
	/* The kernel's own copies of both names: they differ when an interpreter runs a script. */
	name = READ(struct linux_binprm, bprm, filename);
	if (name != READ(struct linux_binprm, bprm, interp)) {
		event->script.marks = PATH_UNRESOLVED;
		n = bpf_probe_read_kernel_str(&record->data[at], PATH_CAP, name);
		if (n > 0 && n <= PATH_CAP)
			event->script.len = n - 1;
		at += event->script.len;
	}
	event->argv_len = copy_user(READ(struct mm_struct, mm, arg_start), READ(struct mm_struct, mm, arg_end),
				    ARGV_CAP, cpu, at, &event->argv_size);
	at += event->argv_len;
	event->env_len = copy_user(READ(struct mm_struct, mm, env_start), READ(struct mm_struct, mm, env_end),
				   ENV_CAP, cpu, at, &event->env_size);
	at += event->env_len;
	note_doubt(run, event->file.marks | event->cwd.marks);
	at = at_most(at, sizeof(record->data));
	send(id, run, &event->head, sizeof(*event) + at, EVENT_EXEC);
	/* What is closed by it was closed by no call: what had been at those numbers is history. */
	acts = bpf_task_storage_get(&folds, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (acts)
		acts->last = event->head.time;
	else
		count(COUNTER_FOLD_MISSING);
	return 0;
}

/* An exec that failed: the caller is still what it was. */
static __always_inline int exec_failed(long ret, bool at_directory)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct exec_record *record;
	struct exec_event *event;
	struct task_struct *task;
	struct pt_regs *regs;
	struct run *run;
	__u64 at, id;

	if (ret >= 0)
		return 0;
	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	record = bpf_map_lookup_elem(&exec_records, &cpu);
	if (!regs || !record) {
		lose(run, EVENT_EXEC);
		return 0;
	}
	event = &record->event;
	__builtin_memset(&event->result, 0, sizeof(*event) - offsetof(struct exec_event, result));
	event->result = ret;
	describe(&event->head.who, task);
	credentials(event, task);
	user_string(at_directory ? (void *)ARG2(regs) : (void *)ARG1(regs), record->data, PATH_CAP,
		    unread(ret), &event->file);
	/* Past the point of no return the memory that it was in is gone. */
	event->file.marks &= ~PATH_RACED;
	at = event->file.len;
	at = at_most(at, PART_CAP);
	if (!at || record->data[0] != '/') {
		directory(task, at_directory ? (__s32)ARG1(regs) : AT_FDCWD, &record->data[at], &event->cwd);
		at += event->cwd.len;
	}
	note_doubt(run, event->cwd.marks);
	at = at_most(at, 2 * PART_CAP);
	__builtin_memset(&record->data[at], 0, 8);
	send_act(id, run, &event->head, sizeof(*event) + at, EVENT_EXEC, at);
	return 0;
}

AT_EXIT(execve, execve)
{
	return exec_failed(ret, false);
}

AT_EXIT(execveat, execveat)
{
	return exec_failed(ret, true);
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
	event.start = READ(struct task_struct, child, start_boottime);
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
	/* Before Linux 6.4 the verifier calls a function that returns an int, and leaves the upper half
	 * of the register as it is. */
	switch ((int)bpf_map_update_elem(&exited_groups, &group, &one, BPF_NOEXIST)) {
	case 0:
		return true;
	case -17: /* EEXIST */
		return false;
	}
	count(COUNTER_EXITED_FULL);
	return true;
}

/* A thread that seccomp ended without a signal, as it does where others live on: for a call
 * of another ABI. */
static __always_inline void ended_by_seccomp(__u64 id, struct run *run, struct task_struct *task,
					     struct signal_struct *signal)
{
	struct refused_event event = {};
	struct pt_regs *regs;

	if (READ(struct task_struct, task, exit_code) != SIGSYS ||
	    READ(struct signal_struct, signal, flags) & SIGNAL_GROUP_EXIT)
		return;
	regs = registers(task);
	if (regs)
		foreign_call(&event, task, regs);
	event.signal = SIGSYS;
	describe(&event.head.who, task);
	send(id, run, &event.head, sizeof(event), EVENT_REFUSED);
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
	flush_all(id, run);
	ended_by_seccomp(id, run, task, signal);
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

/* The task with a number of the first PID namespace, found in the tree where the kernel keeps
 * these: Linux 6.1 has no helper that does it. The current task is no substitute: where the
 * host's own memory is short, it can be of another run than the victim. */
static __always_inline struct task_struct *task_numbered(__u32 nr)
{
	enum { LEVELS = 6, SLOTS = 64, MARK = 3, NODE = 2 };
	struct task_struct *current = bpf_get_current_task_btf();
	struct pid *pid = READ(struct task_struct, current, thread_pid);
	struct pid_namespace *first = NULL;
	struct hlist_node *link;
	void *entry;

	bpf_probe_read_kernel(&first, sizeof(first), &pid->numbers[0].ns);
	entry = READ(struct pid_namespace, first, idr.idr_rt.xa_head);
	for (int i = 0; i < LEVELS && ((__u64)entry & MARK) == NODE; i++) {
		struct xa_node *node = entry - NODE;
		__u32 slot = nr >> READ(struct xa_node, node, shift);

		bpf_probe_read_kernel(&entry, sizeof(entry), &node->slots[slot % SLOTS]);
	}
	link = READ(struct pid, entry, tasks[PIDTYPE_PID].first);
	if (!link)
		return NULL;
	return (void *)link - bpf_core_field_offset(struct task_struct, pid_links[PIDTYPE_PID]);
}

/* The victim need not be the current task, and is found by its own cgroup. */
SEC("tp_btf/mark_victim")
int victim_marked(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct cgroup *cgroup, *ancestor = NULL;
	struct event event = {};
	struct css_set *set;
	struct run *run;
	__u64 id;

	if (!victim_is_passed) {
		task = task_numbered(ctx[0]);
		if (!task) {
			count(COUNTER_VICTIM_MISSING);
			return 0;
		}
	}
	set = READ(struct task_struct, task, cgroups);
	cgroup = READ(struct css_set, set, dfl_cgrp);
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
