package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The numbers of a trial's user namespace: any range that isn't root's.
var trialIDs = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}

func checkNamespaces(context.Context, Options) []Check {
	var checks []Check
	for _, ns := range []struct {
		name, sysctl string
		flag         uintptr
	}{
		{"user namespace", "max_user_namespaces", unix.CLONE_NEWUSER},
		{"network namespace", "max_net_namespaces", unix.CLONE_NEWNET},
		{"mount namespace", "max_mnt_namespaces", unix.CLONE_NEWNS},
		{"pid namespace", "max_pid_namespaces", unix.CLONE_NEWPID},
		{"ipc namespace", "max_ipc_namespaces", unix.CLONE_NEWIPC},
		{"uts namespace", "max_uts_namespaces", unix.CLONE_NEWUTS},
		{"cgroup namespace", "max_cgroup_namespaces", unix.CLONE_NEWCGROUP},
	} {
		limit, err := os.ReadFile("/proc/sys/user/" + ns.sysctl)
		if err == nil && strings.TrimSpace(string(limit)) == "0" {
			checks = append(checks, Check{ns.name, Fail, "user." + ns.sysctl + " is 0", "sysctl -w user." + ns.sysctl + "=10000, and put it into /etc/sysctl.d"})
			continue
		}
		checks = append(checks, outcome(ns.name, "can be made", tryNamespace(ns.flag),
			fmt.Sprintf("raise user.%s, and lift what forbids it (seccomp of a surrounding container, a security module)", ns.sysctl)))
	}
	return checks
}

// tryNamespace makes a process in a new namespace that ends before it runs anything:
// the program does not exist, and to be told so is the success.
func tryNamespace(flag uintptr) error {
	attr := &syscall.SysProcAttr{Cloneflags: flag}
	if flag == unix.CLONE_NEWUSER {
		attr.UidMappings, attr.GidMappings = trialIDs, trialIDs
	}
	_, err := syscall.ForkExec("/dev/null/proctor-doctor", []string{"proctor-doctor"}, &syscall.ProcAttr{Sys: attr})
	if errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// newUserNamespace returns a descriptor of a new user namespace with the trial's
// numbers. It is made by a process that is stopped at its first instruction, because
// traced, and killed there.
func newUserNamespace() (*os.File, error) {
	// The tracer is a thread, not a process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"proctor-doctor"}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: trialIDs, GidMappings: trialIDs,
			Ptrace:    true,
			Pdeathsig: syscall.SIGKILL,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	defer func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		// The stop may be reported before the end.
		for {
			var status syscall.WaitStatus
			_, err := syscall.Wait4(pid, &status, 0, nil)
			if errors.Is(err, syscall.EINTR) || err == nil && status.Stopped() {
				continue
			}
			return
		}
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}
