#!/bin/sh
# Compiles proctor.c for both architectures and writes the Go side beside it.
# Needs clang ($BPF_CLANG, or clang-19), llvm-strip of the same version, and the headers
# of libbpf-dev and linux-libc-dev. Run by "go generate", in the package's directory.
set -eu

# Debian keeps <asm/types.h> in a directory named after the host, where a BPF target
# does not look; for these programs it is the same on all.
go tool -modfile=../tools/go.mod bpf2go \
	-cc "${BPF_CLANG:-clang-19}" \
	-target amd64,arm64 \
	-type event -type open_event -type exec_event -type fork_event \
	-type exit_event -type net_event -type change_event -type refused_event -type raced_event \
	-type repeat -type path_part -type identity -type pseudo -type shape -type run -type arm_args -type grant -type grant_key -type sender_key -type steer_key \
	-type event_kind -type path_mark -type open_mark -type change_act -type net_rule -type counter -type map_limits -type preemption \
	kern kern/proctor.c -- \
	-O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare \
	-idirafter /usr/include/x86_64-linux-gnu \
	-idirafter /usr/include/aarch64-linux-gnu
