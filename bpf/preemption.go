package bpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// ErrPreemptible says that the kernel can preempt itself, which it could not when the programs
// were attached: what is done while a bpf(2) call of another process is interrupted would not be
// seen. [Open] attaches them in another way.
var ErrPreemptible = errors.New("the kernel can preempt itself, which it could not when the programs were attached: restart the supervisor, which attaches them for that")

// preemption tells whether the kernel can preempt itself. One with PREEMPT_DYNAMIC is asked
// (kern/preemption.c), as it may change its mind.
type preemption struct {
	prog *ebpf.Program // nil: the kernel's version says all there is to know
	can  bool          // if so
}

// askPreemption finds out how to ask. The preemption is the caller's to close.
func askPreemption(spec *ebpf.CollectionSpec, types *btf.Cache) (*preemption, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	version := strings.Fields(unix.ByteSliceToString(name.Version[:]))
	if !slices.Contains(version, "PREEMPT_DYNAMIC") {
		return &preemption{can: slices.ContainsFunc(version, func(s string) bool { return strings.HasPrefix(s, "PREEMPT") })}, nil
	}
	alone := &ebpf.CollectionSpec{
		Programs:  map[string]*ebpf.ProgramSpec{kernProgPreempts: spec.Programs[kernProgPreempts]},
		Maps:      map[string]*ebpf.MapSpec{},
		Types:     spec.Types,
		ByteOrder: spec.ByteOrder,
	}
	for _, name := range []string{".bss", ".rodata"} {
		alone.Maps[name] = spec.Maps[name].Copy()
	}
	coll, err := ebpf.NewCollectionWithOptions(alone, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, fmt.Errorf("load the question for preemption: %w", err)
	}
	defer coll.Close()
	return &preemption{prog: coll.DetachProgram(kernProgPreempts)}, nil
}

// now reports whether the kernel can, and whether that is known. One that does not say can.
func (p *preemption) now() (can, known bool, err error) {
	if p.prog == nil {
		return p.can, true, nil
	}
	is, err := p.prog.Run(&ebpf.RunOptions{})
	if err != nil {
		return false, false, fmt.Errorf("ask for preemption: %w", err)
	}
	return kernPreemption(is) != kernPreemptionPREEMPTION_OFF, kernPreemption(is) != kernPreemptionPREEMPTION_UNKNOWN, nil
}

func (p *preemption) close() error {
	if p == nil || p.prog == nil {
		return nil
	}
	return p.prog.Close()
}
