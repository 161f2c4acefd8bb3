package bpf

import "github.com/cilium/ebpf"

// LoadForOlderKernel loads the programs as they are where sched_process_exit does not
// tell the end of a process. What decides is removed by the verifier, so that the other
// variant is never checked where it does.
func LoadForOlderKernel() error {
	spec, err := loadKern()
	if err != nil {
		return err
	}
	if err := spec.Variables[kernVarExitSaysGroupDead].Set(false); err != nil {
		return err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	coll.Close()
	return nil
}
