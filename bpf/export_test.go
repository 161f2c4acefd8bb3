package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// LoadForOlderKernel loads the programs as they are where sched_process_exit does not
// tell the end of a process, and mark_victim passes a number. What decides is removed by
// the verifier, so that the other variant is never checked where it does.
func LoadForOlderKernel() error {
	spec, err := loadKern()
	if err != nil {
		return err
	}
	if err := spec.Variables[kernVarExitSaysGroupDead].Set(false); err != nil {
		return err
	}
	if err := spec.Variables[kernVarVictimIsPassed].Set(false); err != nil {
		return err
	}
	if err := spec.Variables[kernVarHooksHaveStorage].Set(false); err != nil {
		return err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	coll.Close()
	return nil
}

// WhenPreemptible has the Sensor take the kernel for one that can preempt itself. It reports whether the
// programs are made for that.
func (s *Sensor) WhenPreemptible() bool {
	s.preemption = &preemption{can: true}
	return s.allExits
}

// Preemption says whether the kernel can preempt itself, and whether that is known.
func (s *Sensor) Preemption() (can, known bool, err error) { return s.preemption.now() }

// Numbered reports whether a call's number is known here.
func Numbered(call string) bool {
	_, known := native.SyscallNames[call]
	return known
}

// Miss has the Watch take programs for passed over n times since it was made.
func (w *Watch) Miss(n uint64) { w.before -= n }

// AttachVictimByNumber attaches, beside the Sensor's own, the program that finds an OOM
// victim by its number. Where the kernel passes the victim, that is replaced by its number
// before the program looks.
func AttachVictimByNumber(s *Sensor) (link.Link, error) {
	spec, err := loadKern()
	if err != nil {
		return nil, err
	}
	types := btf.NewCache()
	depth, err := cgroupLevel(spec, types, s.opts.Cgroup)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[kernVarRunLevel].Set(depth + 1); err != nil {
		return nil, err
	}
	if err := spec.Variables[kernVarVictimIsPassed].Set(false); err != nil {
		return nil, err
	}
	passed, err := tracepointParams(types, "mark_victim")
	if err != nil {
		return nil, err
	}
	prog := spec.Programs[kernProgVictimMarked]
	if _, isPointer := passed[0].Type.(*btf.Pointer); isPointer {
		if err := passNumber(prog, types); err != nil {
			return nil, err
		}
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{kernProgVictimMarked: prog}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Cache: types,
		MapReplacements: map[string]*ebpf.Map{
			kernMapRuns: s.coll.Maps[kernMapRuns], kernMapRings: s.coll.Maps[kernMapRings], kernMapCounters: s.coll.Maps[kernMapCounters],
		},
	})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return link.AttachTracing(link.TracingOptions{Program: coll.Programs[kernProgVictimMarked]})
}

// passNumber makes a program that is passed a task see the task's number instead.
func passNumber(prog *ebpf.ProgramSpec, types *btf.Cache) error {
	kernel, err := types.Kernel()
	if err != nil {
		return err
	}
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return err
	}
	offset := int16(-1)
	for _, m := range task.Members {
		if m.Name == "pid" {
			offset = int16(m.Offset.Bytes())
		}
	}
	if offset < 0 {
		return fmt.Errorf("%s has no pid", task.Name)
	}
	const bottom = -512 // of the stack: the program does not come that far
	before := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R2, offset, asm.Word),
		asm.StoreMem(asm.R10, bottom, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, bottom),
	}
	before[0].Metadata, prog.Instructions[0].Metadata = prog.Instructions[0].Metadata, asm.Metadata{}
	prog.Instructions = append(before, prog.Instructions...)
	return nil
}
