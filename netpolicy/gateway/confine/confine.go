// Package confine takes from a process what it does not need: files, programs, other
// processes, and every system call but those that move bytes.
package confine

import (
	"fmt"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// calls are what the Go runtime and sockets of IP need. Any other fails with EPERM, which
// nothing here takes for a reason to go on without. A file is opened by none of them.
var calls = []string{
	// Sockets that are there, and their ends.
	"read", "write", "readv", "writev", "close", "shutdown",
	"connect", "accept4", "bind", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"sendto", "recvfrom", "sendmsg", "recvmsg", "splice", "pipe2", "fcntl",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "eventfd2",
	// Memory.
	"mmap", "munmap", "madvise", "mprotect", "brk",
	// Threads of its own, their signals and clocks.
	"clone", "futex", "set_robust_list", "rseq", "sched_yield", "sched_getaffinity",
	"gettid", "getpid", "exit", "exit_group", "restart_syscall", "membarrier",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
	"nanosleep", "clock_nanosleep", "clock_gettime", "timer_create", "timer_settime", "timer_delete",
	"getrandom", "prlimit64",
}

// Confine holds for all threads of the process, and for ever. It may be called once.
func Confine() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("undumpable: %w", err)
	}
	// No path at all; Linux 5.19 and later.
	if err := landlock.V2.RestrictPaths(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	// Nor a signal or an abstract socket of anybody else, where the kernel can.
	if err := landlock.V6.BestEffort().RestrictScoped(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	self := uint64(unix.Getpid())
	filter := seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, // with EPERM
			Syscalls: []seccomp.SyscallGroup{{
				Action: seccomp.ActionAllow,
				Names:  append(threads, calls...),
				NamesWithCondtions: []seccomp.NameWithConditions{
					{Name: "socket", Conditions: argument(0, unix.AF_INET)},
					{Name: "socket", Conditions: argument(0, unix.AF_INET6)},
					{Name: "tgkill", Conditions: argument(0, self)}, // how the runtime preempts its threads
					{Name: "ioctl", Conditions: argument(1, unix.TIOCINQ)},
				},
			}},
		},
	}
	if err := seccomp.LoadFilter(filter); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// argument is a condition on one of a call's arguments.
func argument(index uint32, value uint64) seccomp.ArgumentConditions {
	return seccomp.ArgumentConditions{{Argument: index, Operation: seccomp.Equal, Value: value}}
}
