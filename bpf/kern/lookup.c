// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * In a run's network namespace every address leads to a socket of ours. Loaded once for each
 * namespace, with a map of its own, and attached to it.
 */
#include "net.h"

enum lookup_limits {
	MAX_STEERED = 64,
};

/* Where to: a port's own socket, or the one of port 0, which is for all others. */
struct steer_key {
	__u16 port; /* host order */
	__u8 protocol;
	__u8 family; /* 4 or 6 */
};

/* Filled by the loader before the program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, MAX_STEERED);
	__type(key, struct steer_key);
	__type(value, __u64);
} steered SEC(".maps");

SEC("sk_lookup")
int steer(struct bpf_sk_lookup *ctx)
{
	struct steer_key key = { .port = ctx->local_port, .protocol = ctx->protocol };
	struct bpf_sock *sk;
	long failed;

	if (ctx->family == AF_INET) {
		if ((ctx->local_ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) ||
		    ctx->local_ip4 == own4)
			return SK_PASS; /* a server of the run's own, or nobody */
		key.family = 4;
	} else {
		__be32 a[4] = { ctx->local_ip6[0], ctx->local_ip6[1], ctx->local_ip6[2], ctx->local_ip6[3] };

		if (!a[0] && !a[1] && !a[2] && a[3] == bpf_htonl(1))
			return SK_PASS;
		if (a[0] == own6[0] && a[1] == own6[1] && a[2] == own6[2] && a[3] == own6[3])
			return SK_PASS;
		key.family = 6;
	}
	sk = bpf_map_lookup_elem(&steered, &key);
	if (!sk) {
		key.port = 0;
		sk = bpf_map_lookup_elem(&steered, &key);
	}
	if (!sk)
		return SK_DROP;
	failed = bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return failed ? SK_DROP : SK_PASS;
}
