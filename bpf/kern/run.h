/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which run a task belongs to, what is known of that run, and how an event of it is
 * sent. Every program starts here.
 */
#ifndef PROCTOR_RUN_H
#define PROCTOR_RUN_H

#include "kernel.h"
#include "event.h"

enum map_limits {
	MAX_RUNS = 4096, /* alive at one time */
	MAX_CALLS = 1024, /* above the highest number of a system call */
	RING_MIN = 4096, /* placeholder: each ring is made with its run's own size */
	WAKE_EVERY = 64, /* events between two looks at how full a ring is */
	WAKE_SIZE = 1024, /* a record this large is always followed by a look */
	CHARGE_UNIT = 1024, /* bytes of a record that count as one event */
};

/* Why something could not be observed or was refused without a record. The names
 * after COUNTER_ reach the metrics as they are, in lower case. */
enum counter {
	COUNTER_RING_FULL, /* an event found no room: also in the run's lost */
	COUNTER_RING_MISSING, /* a run without a ring: also in the run's lost */
	COUNTER_AUDIT_LIMIT, /* an event past its run's limit: also in the run's lost */
	COUNTER_SLOT_MISSING, /* a shared descriptor could not be remembered */
	COUNTER_FOLD_MISSING, /* no task storage: repeats are sent one by one */
	COUNTER_SCRATCH_MISSING, /* no per-CPU buffer: also in the run's lost */
	COUNTER_REGISTERS_MISSING, /* no pt_regs of a task: its arguments are unknown */
	COUNTER_DESCRIPTOR_GONE, /* a descriptor was closed before it could be read */
	COUNTER_PATH_FAULT, /* a component's name could not be read */
	COUNTER_PATH_UNFINISHED, /* more steps than the walk may take */
	COUNTER_STRING_FAULT, /* the caller's string could not be read */
	COUNTER_HOW_FAULT, /* openat2's structure could not be read */
	COUNTER_ARGV_FAULT, /* part of a command line could not be read */
	COUNTER_EXE_MISSING, /* exec without an executable file */
	COUNTER_EXITED_FULL, /* an exit could not be told from a repeated one */
	COUNTER_VICTIM_MISSING, /* an OOM victim's number led to no task */
	COUNTER_OWNER_MISSING, /* socket storage could not be made, or held nothing */
	COUNTER_NO_POLICY_SOCKET, /* socket() below the parent, outside any run: refused */
	COUNTER_NO_POLICY_CONNECT, /* connect or send, likewise */
	COUNTER_NO_POLICY_EGRESS, /* packet, likewise: dropped */
	COUNTER_SOCKET_REFUSED, /* family, type or protocol that no run may have */
	COUNTER_EGRESS_DROPPED, /* packets of runs that only the backstop stopped */
	COUNTER_HEADER_FAULT, /* a packet's header could not be read: dropped */
	COUNTER_SENDER_MISSING, /* who sent a packet could not be noted */
	COUNTERS,
};

struct run {
	__u64 seq; /* last number given */
	__u64 charged; /* events, a large one once for each CHARGE_UNIT that it begins */
	__u64 limit; /* of charged, past which events are lost; 0: none */
	__u64 raced; /* events that may name the wrong file */
	__u64 folded; /* acts that are in a struct repeat's count, or will be */
	__u64 lost[EVENT_KINDS]; /* events that had a number and found no room */
	__u32 armed; /* 0: only what is refused is recorded */
	__u32 watermark; /* bytes waiting from which the reader is woken */
	__u32 shares; /* one of its descriptor tables was shared: raced.h has something to say */
	__u32 unused;
};

/* Depth of a run's cgroup. Read from the kernel by the loader (level.c): every task
 * below the parent has its run's id as its ancestor at this level. */
const volatile __u32 run_level = 0;

/* Runs by cgroup id. Written by the loader (entry made and removed) and, in place, by
 * every program (seq, lost) and by arm. A hash because ids are sparse; preallocated
 * because tracing programs must not allocate. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_RUNS);
	__type(key, __u64);
	__type(value, struct run);
} runs SEC(".maps");

/* The ring of each run, by cgroup id. Written by every program, read by the run's
 * Watch alone. One ring a run, so that none can cost another an event. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, MAX_RUNS);
	__type(key, __u64);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, RING_MIN);
	});
} rings SEC(".maps");

/* Failures by enum counter. Written by every program, summed by Counters. Per CPU, so
 * that counting costs no shared cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(enum counter which)
{
	__u32 key = which;
	__u64 *n = bpf_map_lookup_elem(&counters, &key);

	if (n)
		(*n)++;
}

/* The run of the current task, or NULL. *id is its cgroup id. */
static __always_inline struct run *current_run(__u64 *id)
{
	*id = bpf_get_current_ancestor_cgroup_id(run_level);
	if (!*id)
		return NULL;
	return bpf_map_lookup_elem(&runs, id);
}

static __always_inline struct pid *group_pid(struct task_struct *task)
{
	struct signal_struct *signal = READ(struct task_struct, task, signal);

	return READ(struct signal_struct, signal, pids[PIDTYPE_TGID]);
}

/* The number of a pid in the namespace at level, or 0 when it has none there. */
static __always_inline __u32 pid_number(struct pid *pid, __u32 level)
{
	int nr = 0;

	if (!pid || READ(struct pid, pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&nr, sizeof(nr), &pid->numbers[level].nr);
	return nr;
}

/* Numbers are those of the task's own PID namespace: a run's code can't make another. */
static __always_inline void describe(struct process *who, struct task_struct *task)
{
	struct task_struct *parent = READ(struct task_struct, task, real_parent);
	struct task_struct *leader = READ(struct task_struct, task, group_leader);
	struct pid *pid = group_pid(task);
	__u32 level = READ(struct pid, pid, level);

	who->host_pid = READ(struct task_struct, task, tgid);
	who->pid = pid_number(pid, level);
	if (READ(struct task_struct, task, pid) == who->host_pid)
		who->tid = 0;
	else
		who->tid = pid_number(READ(struct task_struct, task, thread_pid), level);
	who->ppid = pid_number(group_pid(parent), level);
	who->start = READ(struct task_struct, leader, start_boottime);
	bpf_probe_read_kernel(who->comm, sizeof(who->comm), &task->comm);
}

static __always_inline void lose(struct run *run, enum event_kind kind)
{
	__sync_fetch_and_add(&run->seq, 1);
	__sync_fetch_and_add(&run->lost[kind], 1);
}

/* Numbers an event and sends the record it is in, which may begin before it. The reader
 * polls; it is woken only when a ring fills faster than that. Returns the event's number,
 * or 0 when it is lost. */
static __always_inline __u64 emit(__u64 id, struct run *run, struct event *event, void *record,
				  __u64 size, enum event_kind kind)
{
	void *ring = bpf_map_lookup_elem(&rings, &id);
	__u64 flags = BPF_RB_NO_WAKEUP;
	__u64 seq, charged;

	if (!ring) {
		lose(run, kind);
		count(COUNTER_RING_MISSING);
		return 0;
	}
	seq = __sync_fetch_and_add(&run->seq, 1) + 1;
	charged = __sync_fetch_and_add(&run->charged, 1 + size / CHARGE_UNIT) + 1;
	if (run->limit && charged > run->limit) {
		__sync_fetch_and_add(&run->lost[kind], 1);
		count(COUNTER_AUDIT_LIMIT);
		return 0;
	}
	event->seq = seq;
	if ((seq % WAKE_EVERY == 0 || size >= WAKE_SIZE) &&
	    bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) >= run->watermark)
		flags = BPF_RB_FORCE_WAKEUP;
	if (bpf_ringbuf_output(ring, record, size, flags)) {
		__sync_fetch_and_add(&run->lost[kind], 1);
		count(COUNTER_RING_FULL);
		return 0;
	}
	return seq;
}

/* Sends a record of which everything but the numbering is filled in. Returns its number,
 * or 0 when it is lost. */
static __always_inline __u64 send(__u64 id, struct run *run, struct event *event, __u64 size,
				  enum event_kind kind)
{
	event->kind = kind;
	event->size = size;
	event->time = bpf_ktime_get_boot_ns();
	return emit(id, run, event, event, size, kind);
}

#endif
