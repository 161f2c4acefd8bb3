/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Addresses in their one canonical form. */
#ifndef PROCTOR_NET_H
#define PROCTOR_NET_H

#include "run.h"

/* The IPv4 address in an IPv4-mapped one; a[0..2] are its prefix. */
static __always_inline bool mapped(const __be32 a[4])
{
	return !a[0] && !a[1] && a[2] == bpf_htonl(0xffff);
}

static __always_inline void destination4(struct net_event *event, __be32 address)
{
	event->family = 4;
	__builtin_memcpy(event->address, &address, sizeof(address));
}

static __always_inline void destination6(struct net_event *event, const __be32 a[4])
{
	if (mapped(a)) {
		event->mapped = 1;
		destination4(event, a[3]);
		return;
	}
	event->family = 6;
	__builtin_memcpy(event->address, a, sizeof(event->address));
}

/* What a call of a thread has done to which socket, from the kernel's own hooks: by the time
 * that the call returns, another socket can be at its descriptor. */
struct act_key {
	__u64 thread; /* thread group << 32 | thread, the host's */
	__u64 kind; /* enum event_kind */
};

struct act_socket {
	__u64 sk; /* that listens */
	__u8 address[16]; /* that it was bound to, as are the others: as in struct net_event */
	__u16 port;
	__u16 protocol;
	__u8 family;
	__u8 mapped;
	__u8 unused[2];
};

/* Written by the hooks, read and removed by the programs at the calls' exits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct act_key);
	__type(value, struct act_socket);
} act_sockets SEC(".maps");

#endif
