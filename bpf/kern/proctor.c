// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * All programs in one object, so that they share the maps by being compiled together.
 */
#include "files.c"
#include "changes.c"
#include "calls.c"
#include "raced.c"
#include "processes.c"
#include "sockets.c"
#include "egress.c"
#include "lookup.c"
#include "exits.c"
#include "level.c"
#include "preemption.c"

/* Never used: it puts types into the debug information, from which the Go ones are
 * made, that no map leads to. */
const union {
	struct refused_event refused;
	struct raced_event raced;
	struct repeat repeat;
	struct fork_event fork;
	struct exit_event exit;
	struct net_event net;
	struct pseudo pseudo;
	struct sender_key sender;
	struct arm_args arm;
	enum path_mark mark;
	enum open_mark open_mark;
	enum change_act act;
	enum net_rule rule;
	enum counter counter;
	enum map_limits limits;
	enum preemption preemption;
} *types __attribute__((unused));

char __license[] SEC("license") = "Dual BSD/GPL";
