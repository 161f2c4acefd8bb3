// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What a run may reach: its own loopback, and what it is granted. Attached to the parent
 * cgroup, so that a child without a run is refused everything.
 *
 * The hooks before an act (sock_create, connect, sendmsg) refuse with EPERM and know
 * who acts. The egress program behind them sees packets, whoever is current, and drops
 * what got past them.
 */
#include "fold.h"
#include "net.h"

enum grant_limits {
	MAX_GRANTS = 65536, /* of all runs */
	MAX_PORTS = 64, /* of one grant */
	MAX_SENDERS = 4096, /* of each run */
};

struct grant_port {
	__u16 port;
	__u8 protocol;
	__u8 rule; /* enum net_rule */
};

/* What of a range of addresses is granted to a run. */
struct grant {
	__u16 count; /* of ports */
	__u8 named; /* addresses that stand for names: that a datagram socket is connected to one means nothing */
	__u8 unused;
	struct grant_port ports[MAX_PORTS];
};

struct grant_key {
	__u32 prefix; /* bits: those of run, and of the address */
	__u32 run[2]; /* cgroup id, low half first */
	__be32 address[4]; /* IPv4 as ::ffff:a.b.c.d */
};

/* Grants by run and address, the longest prefix first. Written by the loader before the
 * run's entry is, read by judge and egress. A run without an entry reaches nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_GRANTS);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, struct grant_key);
	__type(value, struct grant);
} grants SEC(".maps");

/* The run's own addresses that are no loopback addresses. Set by the loader; 0: none. */
const volatile __be32 own4 = 0;
const volatile __be32 own6[4] = {};

/* Both ends: one port can be that of many sockets, with other addresses or to elsewhere. */
struct sender_key {
	__be32 from[4]; /* IPv4 as ::ffff:a.b.c.d, as is to */
	__be32 to[4];
	__u16 from_port; /* host order, as is to_port */
	__u16 to_port;
	__u8 protocol;
	__u8 unused[3];
};

/* Of each run that is granted something, by cgroup id: who last sent from one end to another, a
 * connection's first packet and every datagram. Written by egress, read by the loader, for whom a
 * connection is its two ends. LRU, because nothing tells that a port is free again; one for each
 * run, so that none can push out what is known of another. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, MAX_RUNS);
	__type(key, __u64);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_LRU_HASH);
		__uint(max_entries, MAX_SENDERS);
		__type(key, struct sender_key);
		__type(value, struct process);
	});
} senders SEC(".maps");

/* Whether the kernel lets a hook of sockets use the thread's storage, as it does since 6.12
 * or so. Set by the loader; where it does not, their acts are not folded. */
const volatile bool hooks_have_storage = true;

enum {
	TCP_SYN = 2,
};

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
	return !address || (address & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) ||
	       address == own4;
}

static __always_inline bool loopback6(const __be32 a[4])
{
	if (mapped(a))
		return loopback4(a[3]);
	if (own6[0] && a[0] == own6[0] && a[1] == own6[1] && a[2] == own6[2] && a[3] == own6[3])
		return true;
	return !a[0] && !a[1] && !a[2] && (!a[3] || a[3] == bpf_htonl(1));
}

/* The grant of an event's address, or NULL. */
static __always_inline struct grant *grant_of(__u64 id, const struct net_event *event)
{
	struct grant_key key = { .prefix = 64 + 128, .run = { (__u32)id, id >> 32 } };

	if (event->family == 4) {
		key.address[2] = bpf_htonl(0xffff);
		__builtin_memcpy(&key.address[3], event->address, 4);
	} else {
		__builtin_memcpy(key.address, event->address, 16);
	}
	return bpf_map_lookup_elem(&grants, &key);
}

/* Which rule lets an event through, or RULE_NONE. */
static __always_inline enum net_rule granting(const struct grant *grant, const struct net_event *event)
{
	__u32 i;

	for (i = 0; i < MAX_PORTS; i++) {
		if (i >= grant->count)
			break;
		if (grant->ports[i].port == event->port && grant->ports[i].protocol == event->protocol)
			return grant->ports[i].rule;
	}
	return RULE_NONE;
}

/* Makes the caller of a connect whose the socket's packets are: not who made the socket. */
static __always_inline void own(struct bpf_sock_addr *ctx, struct process *who)
{
	struct process *owner = NULL;

	if (!ctx->sk)
		return;
	owner = bpf_sk_storage_get(&owners, ctx->sk, who, BPF_SK_STORAGE_GET_F_CREATE);
	if (owner)
		*owner = *who;
	else
		count(COUNTER_OWNER_MISSING);
}

/* Decides on and records what the current task is about to do. */
static __always_inline int judge(struct bpf_sock_addr *ctx, struct net_event *event, bool loopback,
				 enum event_kind kind)
{
	enum net_rule rule = RULE_NONE;
	struct grant *grant;
	struct run *run;
	__u64 id;

	run = current_run(&id);
	if (!run) {
		count(COUNTER_NO_POLICY_CONNECT);
		return REFUSE;
	}
	/* A datagram with options on a connected socket gives no address: it goes where that is. */
	if (kind == EVENT_SEND && !ctx->user_family && !ctx->user_port)
		return ALLOW;
	if (loopback && !run->armed)
		return ALLOW;
	event->protocol = ctx->protocol;
	event->port = bpf_ntohs((__u16)ctx->user_port);
	if (loopback) {
		rule = RULE_LOOPBACK;
	} else {
		grant = grant_of(id, event);
		if (grant)
			rule = granting(grant, event);
		/* The C library connects one to every address of a name to sort them. What is
		 * sent is judged as a packet. */
		if (grant && grant->named && kind == EVENT_CONNECT &&
		    event->protocol == IPPROTO_UDP && rule == RULE_NONE) {
			describe(&event->head.who, bpf_get_current_task_btf());
			own(ctx, &event->head.who);
			return ALLOW;
		}
	}
	event->allowed = rule != RULE_NONE;
	event->rule = rule ?: RULE_NO_GRANT;
	describe(&event->head.who, bpf_get_current_task_btf());
	if (event->allowed && !loopback)
		own(ctx, &event->head.who);
	send_folding(id, run, &event->head, sizeof(*event), kind, event->port, hooks_have_storage);
	return event->allowed ? ALLOW : REFUSE;
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

/* Notes what a bind has given a socket, for the exit of the call (sockets.c). */
static __always_inline int note_bound(struct bpf_sock *ctx, const __be32 address[4], bool v6)
{
	struct act_key key = { .thread = bpf_get_current_pid_tgid(), .kind = EVENT_BIND };
	struct act_socket bound = {};
	struct net_event event = {};
	__u64 id;

	if (!current_run(&id))
		return ALLOW; /* it can have made no socket */
	if (v6)
		destination6(&event, address);
	else
		destination4(&event, address[0]);
	__builtin_memcpy(bound.address, event.address, sizeof(bound.address));
	bound.family = event.family;
	bound.mapped = event.mapped;
	bound.protocol = ctx->protocol;
	bound.port = ctx->src_port;
	bpf_map_update_elem(&act_sockets, &key, &bound, BPF_ANY);
	return ALLOW;
}

SEC("cgroup/post_bind4")
int bound4(struct bpf_sock *ctx)
{
	__be32 address[4] = { ctx->src_ip4 };

	return note_bound(ctx, address, false);
}

SEC("cgroup/post_bind6")
int bound6(struct bpf_sock *ctx)
{
	__be32 address[4] = { ctx->src_ip6[0], ctx->src_ip6[1], ctx->src_ip6[2], ctx->src_ip6[3] };

	return note_bound(ctx, address, true);
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

/* A packet: where it goes is in its event. */
struct packet {
	bool loopback;
	bool first; /* of a connection, or a datagram */
	__be32 source[4];
	__u16 from; /* port, host order */
};

/* Reads a packet's headers. Returns false when they can't be read. */
static __always_inline bool headers(struct __sk_buff *skb, struct net_event *event, struct packet *p)
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
		p->loopback = address[0] && loopback4(address[0]);
		if (p->loopback)
			return true;
		destination4(event, address[0]);
		p->source[2] = bpf_htonl(0xffff);
		if (bpf_skb_load_bytes(skb, 9, &byte, 1) ||
		    bpf_skb_load_bytes(skb, 12, &p->source[3], sizeof(p->source[3])))
			return false;
		/* Of options, some have a packet go elsewhere afterwards. */
		if (transport != 20)
			return false;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, 24, address, sizeof(address)))
			return false;
		transport = 40;
		p->loopback = loopback6(address) && address[3];
		if (p->loopback)
			return true;
		destination6(event, address);
		if (bpf_skb_load_bytes(skb, 6, &byte, 1) ||
		    bpf_skb_load_bytes(skb, 8, p->source, sizeof(p->source)))
			return false;
		/* Segments that are to be cut later may be longer than a packet, and say so in
		 * a header of 8 bytes that the kernel writes (RFC 2675). */
		if (byte == IPPROTO_HOPOPTS) {
			if (bpf_skb_load_bytes(skb, 41, &byte, 1) || byte ||
			    bpf_skb_load_bytes(skb, 40, &byte, 1))
				return false;
			transport = 48;
		}
	} else {
		return false;
	}
	event->protocol = byte;
	if (byte != IPPROTO_TCP && byte != IPPROTO_UDP)
		return true;
	if (!bpf_skb_load_bytes(skb, transport + 2, &port, sizeof(port)))
		event->port = bpf_ntohs(port);
	if (!bpf_skb_load_bytes(skb, transport, &port, sizeof(port)))
		p->from = bpf_ntohs(port);
	p->first = byte == IPPROTO_UDP ||
		   (!bpf_skb_load_bytes(skb, transport + 13, &byte, 1) && (byte & TCP_SYN));
	return true;
}

/* Notes who sends. */
static __always_inline void note_sender(__u64 id, const struct net_event *event, const struct packet *p,
					struct process *owner)
{
	struct sender_key key = { .from_port = p->from, .to_port = event->port, .protocol = event->protocol };
	void *own = bpf_map_lookup_elem(&senders, &id);

	__builtin_memcpy(key.from, p->source, sizeof(key.from));
	if (event->family == 4) {
		key.to[2] = bpf_htonl(0xffff);
		__builtin_memcpy(&key.to[3], event->address, 4);
	} else {
		__builtin_memcpy(key.to, event->address, sizeof(key.to));
	}

	if (!owner)
		count(COUNTER_OWNER_MISSING);
	else if (!own || bpf_map_update_elem(own, &key, owner, BPF_ANY))
		count(COUNTER_SENDER_MISSING);
}

SEC("cgroup_skb/egress")
int egress(struct __sk_buff *skb)
{
	struct net_event event = {};
	struct grant *grant = NULL;
	struct packet p = {};
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
	if (!headers(skb, &event, &p))
		count(COUNTER_HEADER_FAULT);
	else if (p.loopback)
		return ALLOW;
	else
		grant = grant_of(id, &event);
	sk = skb->sk;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	owner = sk ? bpf_sk_storage_get(&owners, sk, NULL, 0) : NULL;
	if (grant && granting(grant, &event)) {
		if (p.first)
			note_sender(id, &event, &p, owner);
		return ALLOW;
	}

	if (owner)
		event.head.who = *owner;
	else
		count(COUNTER_OWNER_MISSING);
	if (grant && grant->named) {
		event.rule = RULE_NO_GRANT; /* from a socket that could be connected */
	} else {
		event.rule = RULE_BACKSTOP;
		count(COUNTER_EGRESS_DROPPED);
	}
	send(id, run, &event.head, sizeof(event), EVENT_DROP);
	return REFUSE;
}
