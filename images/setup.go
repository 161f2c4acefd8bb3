package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// runIn runs a setup step in the image: no network, no other processes, nothing mounted.
func runIn(ctx context.Context, rootfs string, step SetupStep, epoch time.Time, log io.Writer) error {
	cmd := exec.CommandContext(ctx, step.Run[0])
	cmd.Path, cmd.Args, cmd.Dir = step.Run[0], step.Run, "/"
	cmd.Err = nil // the path is looked up in the image, not here
	cmd.Env = passedEnv(epoch)
	var tail bytes.Buffer
	cmd.Stdout = io.MultiWriter(log, &tail)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = isolated(syscall.CLONE_NEWNET)
	cmd.SysProcAttr.Chroot = rootfs
	cmd.WaitDelay = 10 * time.Second
	// The parent-death signal follows the thread that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out := tail.String()
		return fmt.Errorf("setup %q: %w: %s", step.Name, err, oneLine(out[max(0, len(out)-250):]))
	}
	return nil
}

// isolated gives a command mount and process namespaces that end with it, however it ends, and ends it with us.
func isolated(more uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | more,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
}
