package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

const needsKernel = "run a kernel built with CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF and CONFIG_BPF_EVENTS (every distribution's is)"

// A kind is a set of hooks that are checked together, because either all or none are
// of use.
type kind struct {
	name  string
	what  string // what it is for
	hooks []ebpf.ProgramSpec
}

var kinds = []kind{
	{"bpf tracepoint", "file and other system calls are seen", []ebpf.ProgramSpec{{Type: ebpf.TracePoint}}},
	{"bpf cgroup iterator", "a run's level in the cgroup tree is read", []ebpf.ProgramSpec{
		{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "cgroup"},
	}},
	{"bpf cgroup address hooks", "connections are judged and recorded", cgroupHooks(ebpf.CGroupSockAddr,
		ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect,
		ebpf.AttachCGroupUDP4Sendmsg, ebpf.AttachCGroupUDP6Sendmsg,
		ebpf.AttachCGroupInet4Bind, ebpf.AttachCGroupInet6Bind,
		ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet6GetPeername,
	)},
	{"bpf cgroup socket hook", "sockets are tied to their run", cgroupHooks(ebpf.CGroupSock, ebpf.AttachCGroupInetSockCreate)},
	{"bpf cgroup packet hook", "packets that got past the other hooks are dropped", cgroupHooks(ebpf.CGroupSKB, ebpf.AttachCGroupInetEgress)},
	{"bpf socket lookup", "every address of a run leads to the gateway", cgroupHooks(ebpf.SkLookup, ebpf.AttachSkLookup)},
}

func cgroupHooks(typ ebpf.ProgramType, at ...ebpf.AttachType) []ebpf.ProgramSpec {
	specs := make([]ebpf.ProgramSpec, len(at))
	for i, a := range at {
		specs[i] = ebpf.ProgramSpec{Type: typ, AttachType: a}
	}
	return specs
}

func checkPrograms(context.Context, Options) []Check {
	var checks []Check
	for _, k := range kinds {
		var errs []error
		for _, spec := range k.hooks {
			prog, err := loadTiny(spec)
			if err != nil {
				errs = append(errs, fmt.Errorf("load %s %s: %w", spec.Type, spec.AttachType, err))
				continue
			}
			prog.Close()
		}
		checks = append(checks, outcome(k.name, "loads: "+k.what, errors.Join(errs...), needsKernel))
	}
	return append(checks, checkRawTracepoint())
}

// checkRawTracepoint also attaches, for an instant: locked-down kernels may load what
// they then refuse to attach.
func checkRawTracepoint() Check {
	const name = "bpf tp_btf"
	prog, err := loadTiny(ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_process_exit"})
	if err != nil {
		return outcome(name, "", fmt.Errorf("load: %w", err), needsKernel)
	}
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return outcome(name, "", fmt.Errorf("attach to sched_process_exit: %w", err), needsKernel)
	}
	l.Close()
	return ok(name, "attaches: processes are seen")
}

// loadTiny loads a program that returns 1, which every hook of ours takes for "go on",
// and tracing programs 0, as they must.
func loadTiny(spec ebpf.ProgramSpec) (*ebpf.Program, error) {
	var result int32 = 1
	if spec.Type == ebpf.Tracing {
		result = 0
	}
	spec.Name = "proctor_doctor"
	spec.License = "Dual BSD/GPL"
	spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()}
	prog, err := ebpf.NewProgramWithOptions(&spec, ebpf.ProgramOptions{LogDisabled: true})
	return prog, err
}

func checkMaps(context.Context, Options) []Check {
	ring := &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())}
	rings, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "proctor_doctor", Type: ebpf.HashOfMaps, KeySize: 8, ValueSize: 4, MaxEntries: 1, InnerMap: ring,
	})
	if err == nil {
		rings.Close()
	}
	checks := []Check{
		outcome("bpf ring buffer per run", "a hash of ring buffers can be made", err, needsKernel),
		outcome("bpf address ranges", "what a run is granted can be looked up", features.HaveMapType(ebpf.LPMTrie), needsKernel),
		outcome("bpf socket hash", "the gateway's sockets can be found", features.HaveMapType(ebpf.SockHash), needsKernel),
		outcome("bpf socket storage", "available", features.HaveMapType(ebpf.SkStorage), needsKernel),
	}
	for _, h := range []struct {
		name, what string
		helper     asm.BuiltinFunc
	}{
		{"bpf dynptr", "records of any length", asm.FnRingbufReserveDynptr},
		{"bpf loop", "whole paths are read in the kernel", asm.FnLoop},
		{"bpf ancestor cgroup", "a task's run is found", asm.FnGetCurrentAncestorCgroupId},
	} {
		checks = append(checks, outcome(h.name, "available: "+h.what, features.HaveProgramHelper(ebpf.TracePoint, h.helper), needsKernel))
	}
	return checks
}

// checkTrampolines is for information: locked-down kernels refuse these programs, and
// nothing here relies on them.
func checkTrampolines(context.Context, Options) []Check {
	const name = "bpf trampolines"
	refused := func(err error) []Check {
		if needsRoot(err) {
			return []Check{NeedsRoot(name)}
		}
		return []Check{ok(name, fmt.Sprintf("refused (%v); not needed", rootCause(err)))}
	}
	prog, err := loadTiny(ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: "bpf_fentry_test1"})
	if err != nil {
		return refused(err)
	}
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return refused(err)
	}
	l.Close()
	return []Check{ok(name, "allowed; not needed")}
}

func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
