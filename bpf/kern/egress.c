// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What a run may reach: its own loopback and nothing else. Attached to the parent
 * cgroup, so that a child without a run is refused everything.
 *
 * The hooks before an act (sock_create, connect, sendmsg) refuse with EPERM and know
 * who acts. The egress program behind them sees packets, whoever is current, and drops
 * what got past them.
 */
#include "fold.h"
#include "net.h"

/* Whether the kernel lets a hook of sockets use the thread's storage, as it does since 6.12
 * or so. Set by the loader; where it does not, their acts are not folded. */
const volatile bool hooks_have_storage = true;

enum answer {
	REFUSE = 0, /* EPERM to the caller, or the packet dropped */
	ALLOW = 1,
};

/* Who made a socket, for the packets that are sent from it when somebody else is
 * current. Written by create, read by egress. Socket storage is freed with its socket;
 * a socket made by accept inherits it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct process);
} owners SEC(".maps");

static __always_inline bool loopback4(__be32 address)
{
	/* Connecting to 0.0.0.0 reaches this host, which here is the run's netns. */
	return !address || (address & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

static __always_inline bool loopback6(const __be32 a[4])
{
	if (mapped(a))
		return loopback4(a[3]);
	return !a[0] && !a[1] && !a[2] && (!a[3] || a[3] == bpf_htonl(1));
}

/* Decides on and records what the current task is about to do. */
static __always_inline int judge(struct bpf_sock_addr *ctx, struct net_event *event, bool loopback,
				 enum event_kind kind)
{
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run) {
		count(COUNTER_NO_POLICY_CONNECT);
		return REFUSE;
	}
	if (loopback && !run->armed)
		return ALLOW;
	event->protocol = ctx->protocol;
	event->port = bpf_ntohs((__u16)ctx->user_port);
	event->allowed = loopback;
	event->rule = loopback ? RULE_LOOPBACK : RULE_NO_GRANT;
	describe(&event->head.who, bpf_get_current_task_btf());
	send_folding(id, run, &event->head, sizeof(*event), kind, event->port, hooks_have_storage);
	return loopback ? ALLOW : REFUSE;
}

static __always_inline int judge4(struct bpf_sock_addr *ctx, enum event_kind kind)
{
	struct net_event event = {};
	__be32 address = ctx->user_ip4;

	/* A datagram of an IPv6 socket gets here with a mapped address that the kernel has
	 * unwrapped; a connect with one that was written plainly. */
	event.mapped = kind == EVENT_SEND && ctx->family == AF_INET6;
	destination4(&event, address);
	return judge(ctx, &event, loopback4(address), kind);
}

static __always_inline int judge6(struct bpf_sock_addr *ctx, enum event_kind kind)
{
	struct net_event event = {};
	__be32 address[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2],
			      ctx->user_ip6[3] };

	destination6(&event, address);
	return judge(ctx, &event, loopback6(address), kind);
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	return judge4(ctx, EVENT_CONNECT);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	return judge6(ctx, EVENT_CONNECT);
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	return judge4(ctx, EVENT_SEND);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	return judge6(ctx, EVENT_SEND);
}

/* Called for AF_INET and AF_INET6 alone; other families are seccomp's to refuse. */
SEC("cgroup/sock_create")
int create(struct bpf_sock *ctx)
{
	struct process owner = {};
	__u64 id;

	if (!current_run(&id)) {
		count(COUNTER_NO_POLICY_SOCKET);
		return REFUSE;
	}
	/* What the hooks below can't judge (raw, ping, UDP-Lite, MPTCP, SCTP) is not made. */
	if ((ctx->family != AF_INET && ctx->family != AF_INET6) ||
	    !((ctx->type == SOCK_STREAM && ctx->protocol == IPPROTO_TCP) ||
	      (ctx->type == SOCK_DGRAM && ctx->protocol == IPPROTO_UDP))) {
		count(COUNTER_SOCKET_REFUSED);
		return REFUSE;
	}
	describe(&owner, bpf_get_current_task_btf());
	if (!bpf_sk_storage_get(&owners, ctx, &owner, BPF_SK_STORAGE_GET_F_CREATE))
		count(COUNTER_OWNER_MISSING);
	return ALLOW;
}

/* Where a packet goes. Returns false when its header can't be read. */
static __always_inline bool packet(struct __sk_buff *skb, struct net_event *event, bool *loopback)
{
	__be32 address[4];
	__u8 byte = 0;
	__be16 port = 0;
	__u32 transport;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &byte, 1) ||
		    bpf_skb_load_bytes(skb, 16, &address[0], sizeof(address[0])))
			return false;
		transport = (byte & 0xf) * 4;
		/* On the wire 0.0.0.0 is no loopback address. */
		*loopback = address[0] && loopback4(address[0]);
		if (*loopback)
			return true;
		destination4(event, address[0]);
		if (bpf_skb_load_bytes(skb, 9, &byte, 1))
			return false;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, 24, address, sizeof(address)))
			return false;
		transport = 40;
		*loopback = loopback6(address) && address[3];
		if (*loopback)
			return true;
		destination6(event, address);
		if (bpf_skb_load_bytes(skb, 6, &byte, 1))
			return false;
	} else {
		return false;
	}
	event->protocol = byte;
	if ((byte == IPPROTO_TCP || byte == IPPROTO_UDP) &&
	    !bpf_skb_load_bytes(skb, transport + 2, &port, sizeof(port)))
		event->port = bpf_ntohs(port);
	return true;
}

SEC("cgroup_skb/egress")
int egress(struct __sk_buff *skb)
{
	struct net_event event = {};
	bool loopback = false;
	struct process *owner;
	struct bpf_sock *sk;
	struct run *run;
	__u64 id;

	id = bpf_skb_ancestor_cgroup_id(skb, run_level);
	run = bpf_map_lookup_elem(&runs, &id);
	if (!run) {
		count(COUNTER_NO_POLICY_EGRESS);
		return REFUSE;
	}
	if (!packet(skb, &event, &loopback))
		count(COUNTER_HEADER_FAULT);
	else if (loopback)
		return ALLOW;

	count(COUNTER_EGRESS_DROPPED);
	sk = skb->sk;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	owner = sk ? bpf_sk_storage_get(&owners, sk, NULL, 0) : NULL;
	if (owner)
		event.head.who = *owner;
	else
		count(COUNTER_OWNER_MISSING);
	event.rule = RULE_BACKSTOP;
	send(id, run, &event.head, sizeof(event), EVENT_DROP);
	return REFUSE;
}
