package bpf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// counterNames returns the names of the C side's failure counters, by index.
func counterNames(types *btf.Spec) ([]string, error) {
	var enum *btf.Enum
	if err := types.TypeByName("counter", &enum); err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	var names []string
	for _, v := range enum.Values {
		if name, ok := strings.CutPrefix(v.Name, "COUNTER_"); ok {
			names = append(names, strings.ToLower(name))
		}
	}
	return names, nil
}

// Counters returns what the programs could not do since Open, by name: the failure
// counters of the C side (run.h says what each means), and program_missed, the times the
// kernel passed a program over.
func (s *Sensor) Counters() (map[string]uint64, error) {
	all := make(map[string]uint64, len(s.counters)+1)
	var perCPU []uint64
	for i, name := range s.counters {
		if err := s.coll.Maps[kernMapCounters].Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("counter %s: %w", name, err)
		}
		for _, n := range perCPU {
			all[name] += n
		}
	}
	missed, err := s.missed()
	if err != nil {
		return nil, err
	}
	all["program_missed"] = missed
	return all, nil
}

// missed returns how often the kernel passed a program over since Open, because something of the
// kind was under way on the same processor. Linux counts that for tracepoints since 6.7. The program at
// signals is left out: it may be interrupted by one that a timer sends, which it would not have told.
func (s *Sensor) missed() (uint64, error) {
	var n uint64
	for name, prog := range s.coll.Programs {
		if name == kernProgSignalled {
			continue
		}
		stats, err := prog.Stats()
		if errors.Is(err, ebpf.ErrNotSupported) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("stats of %s: %w", name, err)
		}
		n += stats.RecursionMisses
	}
	return n, nil
}
