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

#endif
