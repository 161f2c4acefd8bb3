// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * File opens, seen where the system call returns. A call that seccomp refused is seen
 * as well: the exit tracepoint fires for it although the entry one does not.
 */
#include "exits.h"
#include "raced.h"

/* The record under construction, one for each CPU: too large for the stack. Written
 * and read by the open programs only, which run with preemption off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct open_record);
} open_records SEC(".maps");

/* Repeats are told by whole words: what is behind the last byte must not differ. */
static __always_inline void pad(__u8 *data, __u64 at)
{
	__u64 zero = 0;

	__builtin_memcpy(&data[at], &zero, sizeof(zero));
}

/* How a program learns what an open was about. flags are the caller's; of these only
 * what the file does not remember is used when the open succeeded. in_root says that every name
 * starts from dirfd. */
static __always_inline void opened(long result, __s32 dirfd, const void *name, __u32 flags,
				   __u32 open_marks, bool in_root, __u64 id, struct run *run,
				   struct task_struct *task)
{
	enum { FORGOTTEN = O_CREAT | O_EXCL | O_TRUNC };
	__u32 zero = 0;
	struct open_record *record = bpf_map_lookup_elem(&open_records, &zero);
	struct file *file = NULL;
	struct open_event *event;
	struct slot slot = {};
	struct slot_use *use = NULL, before = {};
	bool doubt = false;
	__u64 mark, seq, len;
	__u32 me = 0;

	if (!record) {
		lose(run, EVENT_OPEN);
		count(COUNTER_SCRATCH_MISSING);
		return;
	}
	event = &record->event;
	event->marks = open_marks;
	event->dir.marks = event->dir.len = 0;
	event->result = result < 0 ? result : 0;
	if (result >= 0) {
		file = file_of(task, result);
		if (!file)
			count(COUNTER_DESCRIPTOR_GONE);
		else
			/* At once: a path can take long to read. */
			doubt = !one_reference(file) && at_another_number((__u64)file, result);
	}
	if (file) {
		event->flags = READ(struct file, file, f_flags);
		if (!(event->flags & O_PATH))
			event->flags |= flags & FORGOTTEN;
		identify(file, &event->file);
		file_path(file, record->data, &event->path);
		mark = event->file.inode;
		slot.fd = result;
		slot.file = (__u64)file;
		/* Who exchanged it may have left the table since. */
		if (shares_table(task, &slot) || (run->shares && bpf_map_lookup_elem(&slots, &slot))) {
			run->shares = 1;
			use = use_of(&slot);
			me = READ(struct task_struct, task, pid);
			if (use)
				before = *use;
			else
				doubt = true;
		}
		doubt = doubt || (use && doubtful(task, &slot, &before, mark, me)) ||
			not_opened(&event->path, record->data, event->flags);
	} else {
		__builtin_memset(&event->file, 0, sizeof(event->file));
		event->flags = flags;
		doubt = result >= 0;
		user_string(name, record->data, PATH_CAP, unread(result), &event->path);
		mark = event->path.len;
	}
	if (doubt)
		event->path.marks |= PATH_RACED;
	len = at_most(event->path.len, PART_CAP);
	if (!file && (in_root || !len || record->data[0] != '/')) {
		directory(task, dirfd, &record->data[len], &event->dir);
		len += event->dir.len;
	}
	note_doubt(run, event->path.marks | event->dir.marks);
	len = at_most(len, 2 * PART_CAP);
	pad(record->data, len);
	describe(&event->head.who, task);
	seq = send_act(id, run, &event->head, sizeof(*event) + len, EVENT_OPEN, mark);
	if (use && remember(&slot, use, mark, &event->head, seq, me, &before) && !doubt && seq)
		send_raced(id, run, task, seq);
}

/* A program on the exit of one of the calls that open a file. dirfd, name, flags, marks and
 * in_root are expressions of regs, the registers of the call. */
#define OPEN_PROGRAM(call, dirfd, name, flags, marks, in_root)                              \
	AT_EXIT(call, call)                                                                \
	{                                                                                  \
		struct task_struct *task;                                                  \
		struct pt_regs *regs;                                                      \
		struct run *run;                                                           \
		__u64 id;                                                                  \
                                                                                           \
		run = current_run(&id);                                                    \
		if (!run || !run->armed)                                                   \
			return 0;                                                          \
		task = bpf_get_current_task_btf();                                         \
		regs = registers(task);                                                    \
		if (regs)                                                                  \
			opened(ret, dirfd, (void *)name, flags, marks, in_root, id, run,   \
			       task);                                                      \
		else                                                                       \
			lose(run, EVENT_OPEN);                                             \
		return 0;                                                                  \
	}

/* The flags in openat2's struct open_how, which begins with them. */
static __always_inline __u32 how_flags(struct pt_regs *regs, long result)
{
	__u64 flags = 0;

	if (bpf_probe_read_user(&flags, sizeof(flags), (void *)ARG3(regs)) && result != -EFAULT)
		count(COUNTER_HOW_FAULT);
	return flags;
}

/* Whether it has RESOLVE_IN_ROOT in its third word. */
static __always_inline bool how_in_root(struct pt_regs *regs)
{
	enum { RESOLVE_IN_ROOT = 0x10 };
	__u64 resolve = 0;

	bpf_probe_read_user(&resolve, sizeof(resolve), (void *)ARG3(regs) + 2 * sizeof(__u64));
	return resolve & RESOLVE_IN_ROOT;
}

OPEN_PROGRAM(openat, ARG1(regs), ARG2(regs), ARG3(regs), 0, false)
OPEN_PROGRAM(openat2, ARG1(regs), ARG2(regs), how_flags(regs, ret), 0, how_in_root(regs))
OPEN_PROGRAM(memfd_create, AT_FDCWD, ARG1(regs), O_RDWR | O_CREAT, OPEN_MEMFD, false)
#if defined(__TARGET_ARCH_x86)
OPEN_PROGRAM(open, AT_FDCWD, ARG1(regs), ARG2(regs), 0, false)
OPEN_PROGRAM(creat, AT_FDCWD, ARG1(regs), O_CREAT | O_WRONLY | O_TRUNC, 0, false)
#endif
