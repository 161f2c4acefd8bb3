// Package thread runs code on an operating system thread of its own, for what changes the
// thread it is done on: entering a namespace above all.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f on a thread that ends with it, and with it whatever f made of the thread.
func Run(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread does not end before the process: it would stay what f made it,
			// and be what /proc/self shows. While it is held here, another one is taken.
			done <- Run(f)
			runtime.UnlockOSThread()
			return
		}
		// Never unlocked: the thread ends with this goroutine.
		done <- f()
	}()
	return <-done
}
