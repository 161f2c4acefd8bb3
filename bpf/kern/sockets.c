// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Addresses that a run gives its own sockets, seen where bind and listen return. What was
 * bound is read from the kernel's socket; of an attempt that failed, the caller's words are
 * all there is.
 */
#include "exits.h"
#include "fold.h"
#include "path.h"
#include "net.h"
#include "raced.h"

/* As open_records. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct net_record);
} net_records SEC(".maps");

enum {
	SUN_PATH = 2, /* offset of the name in a sockaddr_un */
	SUN_CAP = 108, /* bytes of it */
};

/* The name of a UNIX socket; addr is the kernel's sockaddr_un, len its length. */
static __always_inline void unix_name(struct net_record *record, const void *addr, __u64 len)
{
	len = at_most(len > SUN_PATH ? len - SUN_PATH : 0, SUN_CAP);
	if (bpf_probe_read_kernel(record->data, len, addr + SUN_PATH))
		len = 0;
	record->event.name_len = len;
}

/* Where the socket is, unless it is of a family that has no addresses others could use. */
static __always_inline void local_address(struct net_record *record, struct sock *sk)
{
	struct net_event *event = &record->event;
	struct unix_address *addr;
	__be32 a[4];

	event->protocol = READ(struct sock, sk, sk_protocol);
	switch (READ(struct sock, sk, __sk_common.skc_family)) {
	case AF_INET:
		event->port = READ(struct sock, sk, __sk_common.skc_num);
		destination4(event, READ(struct sock, sk, __sk_common.skc_rcv_saddr));
		break;
	case AF_INET6:
		event->port = READ(struct sock, sk, __sk_common.skc_num);
		bpf_probe_read_kernel(a, sizeof(a), &sk->__sk_common.skc_v6_rcv_saddr);
		destination6(event, a);
		break;
	case AF_UNIX:
		event->family = AF_UNIX;
		addr = READ(struct unix_sock, sk, addr);
		if (addr)
			unix_name(record, (void *)addr + bpf_core_type_size(struct unix_address),
				  READ(struct unix_address, addr, len));
		break;
	}
}

/* What the caller of a bind that failed asked for. */
static __always_inline void asked_address(struct net_record *record, const void *addr, __u64 len)
{
	struct {
		__u16 family;
		__be16 port;
		__be32 words[6];
	} in = {};

	bpf_probe_read_user(&in, at_most(len, sizeof(in)), addr);
	switch (in.family) {
	case AF_INET:
		record->event.port = bpf_ntohs(in.port);
		destination4(&record->event, in.words[0]);
		break;
	case AF_INET6:
		record->event.port = bpf_ntohs(in.port);
		destination6(&record->event, &in.words[1]);
		break;
	case AF_UNIX:
		record->event.family = AF_UNIX;
		len = at_most(len > SUN_PATH ? len - SUN_PATH : 0, SUN_CAP);
		if (bpf_probe_read_user(record->data, len, addr + SUN_PATH))
			len = 0;
		record->event.name_len = len;
		break;
	}
}

/* Whether a call that succeeded was made on another socket than the one that is there now, which has
 * no address. See raced.h: only threads that share a descriptor table can bring that about. */
static __always_inline bool exchanged(struct task_struct *task, struct file *file, struct sock *sk,
				      enum event_kind kind, __u64 fd, const void *addr)
{
	struct folds *acts = bpf_task_storage_get(&folds, task, NULL, 0);
	struct slot_use *use;
	struct slot slot = {};
	__u16 family = 0;
	__u64 since;

	if (!shares_table(task, &slot))
		return false;
	/* Nobody listens on netlink, and nobody binds it to an address of another family. */
	if (!sk || kind == EVENT_LISTEN)
		return true;
	bpf_probe_read_user(&family, sizeof(family), addr);
	if (family != AF_NETLINK)
		return true;
	slot.fd = fd;
	use = bpf_map_lookup_elem(&slots, &slot);
	since = acts && acts->last ? acts->last : READ(struct task_struct, task, start_boottime);
	return use && use->swapper != READ(struct task_struct, task, pid) && use->swapped > since &&
	       use->swapped_file == (__u64)file;
}

static __always_inline int bound(long ret, enum event_kind kind)
{
	__u32 zero = 0;
	__u64 len;
	struct net_record *record;
	struct net_event *event;
	struct task_struct *task;
	struct pt_regs *regs;
	struct socket *socket;
	struct file *file;
	struct sock *sk = NULL;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run || !run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	record = bpf_map_lookup_elem(&net_records, &zero);
	if (!regs || !record) {
		lose(run, kind);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	event = &record->event;
	event->result = ret;
	event->allowed = ret == 0;
	file = file_of(task, ARG1(regs));
	if (file && READ(struct super_block, READ(struct dentry, READ(struct file, file, f_path.dentry), d_sb), s_magic) == SOCKFS_MAGIC) {
		socket = READ(struct file, file, private_data);
		sk = READ(struct socket, socket, sk);
	}
	if (sk)
		event->protocol = READ(struct sock, sk, sk_protocol);
	if (kind == EVENT_BIND && ret)
		asked_address(record, (void *)ARG2(regs), (__u32)ARG3(regs));
	else if (sk)
		local_address(record, sk);
	if (!event->family) {
		/* Route netlink, or no socket at all. */
		if (!ret && exchanged(task, file, sk, kind, ARG1(regs), (void *)ARG2(regs)))
			lose(run, kind);
		return 0;
	}
	len = at_most(event->name_len, SUN_CAP);
	describe(&event->head.who, task);
	send_act(id, run, &event->head, sizeof(*event) + len, kind, event->port);
	return 0;
}

AT_EXIT(bind, bind)
{
	return bound(ret, EVENT_BIND);
}

AT_EXIT(listen, listen)
{
	return bound(ret, EVENT_LISTEN);
}
