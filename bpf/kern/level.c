// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What the loader needs to ask of the kernel, or have done in it.
 */
#include "run.h"

/* Writes the depth of the one cgroup it is run on. */
SEC("iter/cgroup")
int level(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	__u32 depth;

	if (!cgroup)
		return 0;
	depth = cgroup->level;
	bpf_seq_write(ctx->meta->seq, &depth, sizeof(depth));
	return 0;
}

struct arm_args {
	__u64 id; /* of the run's cgroup */
};

/* Sets a run's armed in place. Updating the map from outside would put a copy there,
 * and lose the numbers given meanwhile. Returns 1 when there is such a run. */
SEC("syscall")
int arm(struct arm_args *args)
{
	__u64 id = args->id;
	struct run *run = bpf_map_lookup_elem(&runs, &id);

	if (!run)
		return 0;
	run->armed = 1;
	return 1;
}
