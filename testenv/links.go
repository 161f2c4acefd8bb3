package testenv

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// Programs returns how many BPF programs the kernel has. One goes when its last link does,
// which for those of a Sensor that was removed takes the kernel some seconds in the background.
func Programs(t testing.TB) int {
	t.Helper()
	n := 0
	for id := ebpf.ProgramID(0); ; n++ {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); err != nil { // none is left
			return n
		}
	}
}

// WaitPrograms waits until the kernel has no more than n.
func WaitPrograms(t testing.TB, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); Programs(t) > n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there are %d BPF programs, and not %d", Programs(t), n)
		}
	}
}
