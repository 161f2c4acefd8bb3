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

/* Whether a bind that succeeded was made on another socket than the one that is there now, which has
 * no address. Only threads that share a descriptor table can bring that about, or did until now. */
static __always_inline bool exchanged(struct task_struct *task, struct file *file, struct sock *sk,
				      __u64 fd, const void *addr)
{
	struct slot_use *use;
	struct slot slot = {};
	__u16 family = 0;

	/* Of the families that a box has, only netlink is without addresses that others could use, and
	 * what was bound is bound. */
	if (!sk || READ(struct sock, sk, __sk_common.skc_family) != AF_NETLINK)
		return true;
	if (bpf_core_field_exists(struct netlink_sock, bound) && !BPF_CORE_READ((struct netlink_sock *)sk, bound))
		return true;
	if (!shares_table(task, &slot))
		return false;
	bpf_probe_read_user(&family, sizeof(family), addr);
	if (family != AF_NETLINK)
		return true;
	slot.fd = fd;
	slot.file = (__u64)file;
	use = bpf_map_lookup_elem(&slots, &slot);
	return use && use->swapper != READ(struct task_struct, task, pid) && use->swapped > last_act(task);
}

static __always_inline struct sock *socket_of(struct file *file)
{
	struct super_block *sb;
	struct socket *socket;

	if (!file)
		return NULL;
	sb = READ(struct dentry, READ(struct file, file, f_path.dentry), d_sb);
	if (READ(struct super_block, sb, s_magic) != SOCKFS_MAGIC)
		return NULL;
	socket = READ(struct file, file, private_data);
	return READ(struct socket, socket, sk);
}

static __always_inline int bound(long ret, enum event_kind kind)
{
	__u32 zero = 0;
	struct act_key key = { .thread = bpf_get_current_pid_tgid(), .kind = kind };
	struct act_socket *noted, did = {};
	struct net_record *record;
	struct net_event *event;
	struct task_struct *task;
	struct pt_regs *regs;
	struct file *file;
	struct sock *sk;
	struct run *run;
	__u64 len, id;

	run = current_run(&id);
	if (!run)
		return 0;
	noted = bpf_map_lookup_elem(&act_sockets, &key);
	if (noted) {
		did = *noted;
		bpf_map_delete_elem(&act_sockets, &key);
	}
	if (!run->armed)
		return 0;
	task = bpf_get_current_task_btf();
	regs = registers(task);
	record = bpf_map_lookup_elem(&net_records, &zero);
	if (!regs || !record) {
		lose(run, kind);
		return 0;
	}
	event = &record->event;
	__builtin_memset(event, 0, sizeof(*event));
	event->result = ret;
	event->allowed = ret == 0;
	file = file_of(task, ARG1(regs));
	sk = !ret && did.sk ? (struct sock *)did.sk : socket_of(file);
	if (sk)
		event->protocol = READ(struct sock, sk, sk_protocol);
	if (!ret && did.family) {
		__builtin_memcpy(event->address, did.address, sizeof(event->address));
		event->family = did.family;
		event->mapped = did.mapped;
		event->protocol = did.protocol;
		event->port = did.port;
	} else if (kind == EVENT_BIND && ret) {
		asked_address(record, (void *)ARG2(regs), (__u32)ARG3(regs));
	} else if (sk) {
		local_address(record, sk);
		/* An address without a port is not noted, nor is a socket that listens already. Another
		 * than the noted one may be what it was: it was closed, and something else is there. */
		if (!ret && event->family != AF_UNIX &&
		    (kind == EVENT_BIND ? event->port != 0 : READ(struct sock, sk, __sk_common.skc_state) != TCP_LISTEN))
			event->family = 0;
	}
	if (!event->family) {
		/* Route netlink, or not the socket that it was. */
		if (!ret && (kind == EVENT_LISTEN || exchanged(task, file, sk, ARG1(regs), (void *)ARG2(regs))))
			lose(run, kind);
		return 0;
	}
	len = at_most(event->name_len, SUN_CAP);
	if (event->family == AF_UNIX && len && record->data[0]) {
		struct unix_sock *us = (struct unix_sock *)sk;

		if (!ret && READ(struct unix_sock, us, path.dentry)) {
			event->name_len = len = 0;
			path_of(&us->path, record->data, &event->path);
		} else if (record->data[0] != '/') {
			directory(task, AT_FDCWD, &record->data[len], &event->path);
		}
		len += event->path.len;
		note_doubt(run, event->path.marks);
	}
	len = at_most(len, SUN_CAP + PART_CAP);
	__builtin_memset(&record->data[len], 0, 8);
	describe(&event->head.who, task);
	send_act(id, run, &event->head, sizeof(*event) + len, kind, event->port);
	return 0;
}

/* A socket begins to listen, which its descriptor may not lead to any more when listen returns. */
SEC("tp_btf/inet_sock_set_state")
int listens(__u64 *ctx)
{
	struct act_key key = { .kind = EVENT_LISTEN };
	struct act_socket noted = { .sk = ctx[0] };
	__u64 id;

	if ((int)ctx[2] != TCP_LISTEN || !current_run(&id))
		return 0;
	key.thread = bpf_get_current_pid_tgid();
	bpf_map_update_elem(&act_sockets, &key, &noted, BPF_ANY);
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
