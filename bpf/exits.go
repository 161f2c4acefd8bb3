package bpf

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

const (
	exitGroup  = "syscalls/"
	exitPrefix = "sys_exit_"

	// The two forms of a program (kern/exits.h).
	traceForm = "exit_"
	rawForm   = "raw_"
)

// calls are the system calls at whose exits a program is; attachTo is the tracepoint that its C
// section names. permitted holds the calls that boxes may make, traced those that the kernel
// has tracepoints for.
func calls(program, attachTo string, permitted, traced map[string]bool) []string {
	var calls []string
	switch program {
	case kernProgExitChange:
		calls = slices.Collect(maps.Keys(changes))
	case kernProgExitSocket:
		calls = []string{"socket", "socketpair"}
	case kernProgExitRefused:
		for call := range traced {
			if !permitted[callOf(call)] && !slices.Contains(elsewhere, callOf(call)) {
				calls = append(calls, call)
			}
		}
	default:
		return []string{strings.TrimPrefix(attachTo, exitGroup+exitPrefix)}
	}
	return slices.DeleteFunc(calls, func(call string) bool { return !traced[call] })
}

// callOf is the name of the call that has a tracepoint by another one.
func callOf(tracepoint string) string {
	if call, other := tracepointNames[tracepoint]; other {
		return call
	}
	return tracepoint
}

// Exits returns the system calls at whose exits the programs are, of those that the kernel
// traces, when a Sensor is given permitted.
func Exits(permitted []string, traced []string) []string {
	spec, err := loadKern()
	if err != nil {
		return nil
	}
	var all []string
	for name, prog := range spec.Programs {
		if prog.Type == ebpf.TracePoint {
			all = append(all, calls(name, prog.AttachTo, set(permitted), set(traced))...)
		}
	}
	return all
}

func set(names []string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[name] = true
	}
	return all
}

// elsewhere are calls that a box may not make, or not always, and that other programs look at.
var elsewhere = []string{"socket", "socketpair", "clone3", "fcntl"}

// chooseForm leaves those programs that see the exits of calls in the one form or in the other. It
// returns the ones at tracepoints, which say where both belong.
func chooseForm(spec *ebpf.CollectionSpec, allExits bool) map[string]*ebpf.ProgramSpec {
	traced, raw := map[string]*ebpf.ProgramSpec{}, map[string]*ebpf.ProgramSpec{kernProgSysExit: spec.Programs[kernProgSysExit]}
	for name, prog := range spec.Programs {
		switch {
		case strings.HasPrefix(name, traceForm):
			traced[name] = prog
		case strings.HasPrefix(name, rawForm):
			raw[name] = prog
		}
	}
	left := raw
	if allExits {
		left = traced
	} else {
		delete(spec.Maps, kernMapAtExit)
	}
	for name := range left {
		delete(spec.Programs, name)
	}
	return traced
}

// byNumber says which program is for which call; places are the programs at tracepoints. There is
// no place for two.
func byNumber(places map[string]*ebpf.ProgramSpec, permitted, traced map[string]bool) (map[uint32]string, error) {
	programs := map[uint32]string{}
	for name, spec := range places {
		for _, call := range calls(name, spec.AttachTo, permitted, traced) {
			number, known := native.SyscallNames[callOf(call)]
			if !known {
				continue
			}
			if other, taken := programs[uint32(number)]; taken {
				return nil, fmt.Errorf("at the exit of %s are %s and %s: one has to do for both", call, name, other)
			}
			programs[uint32(number)] = rawForm + strings.TrimPrefix(name, traceForm)
		}
	}
	// A call that is too new to have a name here is none that a box may make.
	for number := range uint32(maxCalls) {
		if _, known := native.SyscallNumbers[int(number)]; !known {
			programs[number] = kernProgRawRefused
		}
	}
	return programs, nil
}

const maxCalls = uint32(kernMapLimitsMAX_CALLS)

// watch tells the program at all exits, before it is loaded, which calls have a program.
func watch(spec *ebpf.CollectionSpec, programs map[uint32]string) error {
	var bits [maxCalls / 64]uint64
	for number := range programs {
		bits[number/64] |= 1 << (number % 64)
	}
	if err := spec.Variables[kernVarWatchedCalls].Set(bits); err != nil {
		return fmt.Errorf("set watched calls: %w", err)
	}
	return nil
}

// fillExits tells it, before it is attached, which one that is.
func fillExits(coll *ebpf.Collection, programs map[uint32]string) error {
	for number, name := range programs {
		if err := coll.Maps[kernMapAtExit].Put(number, coll.Programs[name]); err != nil {
			return fmt.Errorf("program at the exit of call %d: %w", number, err)
		}
	}
	return nil
}
