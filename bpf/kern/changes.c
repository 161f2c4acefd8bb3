// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Changes to names and to what is known of files: one program on the exit of every call
 * that makes them. What is named by a descriptor is resolved like an open file. What is
 * named by a string has no kernel object left to look at when the call returns; the record
 * has the string, marked unresolved, and the directory that it starts from.
 */
#include "exits.h"
#include "fold.h"
#include "path.h"

/* Which argument of a call is what: its number from 1, or 0 for none. */
struct shape {
	__u8 act; /* enum change_act; CHANGE_NONE: no call that changes anything */
	__u8 fd; /* descriptor of the file itself */
	__u8 dir; /* descriptor that path starts from; 0: the working directory */
	__u8 path;
	__u8 to_dir;
	__u8 to;
	__u8 value;
	__u8 value2;
	__u8 flags; /* AT_* or RENAME_* */
	__u8 to_is_text; /* a link's target or an attribute: no directory belongs to it */
	__u8 owner; /* value is this and the next */
	__u8 unused;
};

/* By system call number. Filled by the loader, which knows the numbers, before any
 * program is attached; constant from then on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CALLS);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct shape);
} shapes SEC(".maps");

/* As open_records. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct change_record);
} change_records SEC(".maps");

enum {
	AT_REMOVEDIR = 0x200,
	RENAME_EXCHANGE = 2,
};

/* Arguments by number, of which 0 is none. */
struct arguments {
	__u64 value[8];
};

static __always_inline __u64 argument(const struct arguments *args, __u8 number)
{
	return args->value[number & 7];
}

/* Appends a name at data[at] and, where it is relative, the directory it starts from.
 * Returns where the next part begins. */
static __always_inline __u64 name_at(struct task_struct *task, const struct arguments *args, __u8 *data,
				     __u64 at, __u8 string, __u8 dirfd, bool text, bool without,
				     struct path_part *part, struct path_part *dir)
{
	__u64 pointer = argument(args, string);
	__u64 begin;

	begin = at = at_most(at, 2 * PART_CAP);
	if (pointer) {
		user_string((void *)pointer, &data[at], PATH_CAP, without, part);
		at += part->len;
		if (text || (part->len && data[begin] == '/'))
			return at;
	}
	at = at_most(at, 3 * PART_CAP);
	directory(task, dirfd ? (__s32)argument(args, dirfd) : AT_FDCWD, &data[at], dir);
	return at + dir->len;
}

AT_EXIT(change, renameat2)
{
	__u32 zero = 0;
	__u64 at = 0;
	struct change_record *record;
	struct change_event *event;
	struct task_struct *task;
	struct shape *shape;
	struct arguments args = {};
	struct pt_regs *regs;
	struct file *file;
	struct run *run;
	bool without;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	shape = bpf_map_lookup_elem(&shapes, &nr);
	record = bpf_map_lookup_elem(&change_records, &zero);
	if (!regs || !shape || !record) {
		lose(run, EVENT_CHANGE);
		return 0;
	}
	args.value[1] = ARG1(regs);
	args.value[2] = ARG2(regs);
	args.value[3] = ARG3(regs);
	args.value[4] = ARG4(regs);
	args.value[5] = ARG5(regs);
	event = &record->event;
	__builtin_memset(&event->value, 0, sizeof(*event) - offsetof(struct change_event, value));
	event->act = shape->act;
	event->result = ret < 0 ? ret : 0;
	without = unread(ret);
	event->value = argument(&args, shape->value);
	if (shape->owner)
		event->value = argument(&args, shape->owner) << 32 |
			       (__u32)argument(&args, shape->owner + 1);
	event->value2 = argument(&args, shape->value2);
	if (event->act == CHANGE_UNLINK && argument(&args, shape->flags) & AT_REMOVEDIR)
		event->act = CHANGE_RMDIR;
	if (event->act == CHANGE_RENAME && argument(&args, shape->flags) & RENAME_EXCHANGE)
		event->act = CHANGE_EXCHANGE;

	if (shape->fd) {
		file = file_of(task, argument(&args, shape->fd));
		if (file)
			file_path(file, record->data, &event->path);
		else
			event->path.marks = PATH_UNRESOLVED;
		at = event->path.len;
	} else {
		at = name_at(task, &args, record->data, at, shape->path, shape->dir, false, without,
			     &event->path, &event->dir);
	}
	if (shape->to)
		at = name_at(task, &args, record->data, at, shape->to, shape->to_dir,
			     shape->to_is_text, without, &event->to, &event->to_dir);
	note_doubt(run, event->path.marks | event->dir.marks | event->to.marks | event->to_dir.marks);
	at = at_most(at, 4 * PART_CAP);
	__builtin_memset(&record->data[at], 0, 8);
	describe(&event->head.who, task);
	send_act(id, run, &event->head, sizeof(*event) + at, EVENT_CHANGE, at + event->act);
	return 0;
}
