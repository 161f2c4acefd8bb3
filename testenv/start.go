package testenv

import (
	"os/exec"
	"runtime"
	"sync"
)

// onLasting hands what it gets to a thread that ends with the process.
var onLasting = sync.OnceValue(func() chan<- func() {
	todo := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range todo {
			f()
		}
	}()
	return todo
})

// Start starts cmd such that its Pdeathsig is sent when this process ends, and not before: the
// kernel sends it when the thread ends that started cmd (PR_SET_PDEATHSIG(2const)), and Go ends
// each thread whose goroutine is locked to it and returns.
func Start(cmd *exec.Cmd) error {
	started := make(chan error)
	onLasting() <- func() { started <- cmd.Start() }
	return <-started
}

// Run starts cmd as [Start] does, and waits for its end.
func Run(cmd *exec.Cmd) error {
	if err := Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
