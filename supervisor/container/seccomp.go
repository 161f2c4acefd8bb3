package container

import (
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A group of system calls that a box may make, and why it may.
type callGroup struct {
	why   string
	names []string
}

const identity = "identity: without capabilities these can only read, or set what is already so"

// Permitted are the system calls that every box may make, whatever the arguments. Those that
// the kernel itself refuses without privilege are not among them: that a program tried is
// worth knowing.
func Permitted() []string {
	calls := append(slices.Clone(native[runtime.GOARCH].calls), limitCalls...)
	for _, g := range allowed {
		for _, call := range g.names {
			if g.why != identity || !strings.HasPrefix(call, "set") && call != "capset" {
				calls = append(calls, call)
			}
		}
	}
	return calls
}

// allowed is everything ordinary programs of today's glibc, musl, CPython, Node, Go
// and the JVM need. What is not here fails with EPERM; what the kernel has added since
// the newest name here fails with ENOSYS (runc adds that), so that a libc that probes
// for a new call falls back.
//
// Deliberately absent, because the kernel's programs would not see what is done through
// them, or because they widen the kernel's surface with nothing that analysis code needs:
// io_uring_*, bpf, perf_event_open, userfaultfd, ptrace, process_vm_*, process_madvise,
// kcmp, pidfd_getfd, mount and the mount API (open_tree, fsopen, …), pivot_root, chroot,
// unshare, setns, name_to_handle_at and open_by_handle_at, keyctl and its family,
// fanotify_*, quotactl, modify_ldt, iopl, ioperm, kexec_*, module calls, swapon, reboot,
// syslog, acct, clock_settime and other clock setters, vhangup, memfd_secret, lookup_dcookie.
var allowed = []callGroup{
	{"files: open, read, write, and what is known of them", []string{
		"access", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
		"faccessat", "faccessat2", "fadvise64", "fallocate", "fdatasync", "fgetxattr",
		"flistxattr", "flock", "fstat", "fstatfs", "fsync", "ftruncate", "getdents", "getdents64",
		"getxattr", "ioctl", "lgetxattr", "listxattr", "llistxattr", "lseek", "lstat",
		"newfstatat", "open", "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64",
		"pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "sendfile",
		"splice", "stat", "statfs", "statx", "sync", "sync_file_range", "syncfs", "tee",
		"truncate", "ustat", "vmsplice", "write", "writev", "cachestat",
	}},
	{"files: changes to names and attributes; the mounts and the user decide what may be changed", []string{
		"chdir", "chmod", "chown", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
		"fchownat", "fremovexattr", "fsetxattr", "futimesat", "getcwd", "lchown", "link",
		"linkat", "lremovexattr", "lsetxattr", "mkdir", "mkdirat", "mknod", "mknodat",
		"removexattr", "rename", "renameat", "renameat2", "rmdir", "setxattr", "symlink",
		"symlinkat", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
	}},
	{"waiting: polling, events, timers", []string{
		"alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create",
		"epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait",
		"epoll_wait_old", "eventfd", "eventfd2", "getitimer", "gettimeofday", "inotify_add_watch",
		"inotify_init", "inotify_init1", "inotify_rm_watch", "nanosleep", "pause", "poll",
		"ppoll", "pselect6", "restart_syscall", "select", "setitimer", "signalfd", "signalfd4",
		"time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
		"timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime", "times",
	}},
	{"memory", []string{
		"brk", "get_mempolicy", "madvise", "map_shadow_stack", "membarrier", "memfd_create",
		"mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync",
		"munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect",
		"remap_file_pages",
	}},
	{"processes and threads; clone has a rule of its own below", []string{
		"execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_requeue",
		"futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "get_thread_area",
		"getcpu", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrlimit",
		"getrusage", "getsid", "gettid", "ioprio_get", "ioprio_set", "kill", "pidfd_open",
		"pidfd_send_signal", "prctl", "rseq", "rt_sigaction", "rt_sigpending",
		"rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
		"rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min",
		"sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
		"sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
		"sched_setscheduler", "sched_yield", "set_robust_list", "set_thread_area",
		"set_tid_address", "setpgid", "setpriority", "setsid", "sigaltstack",
		"tgkill", "tkill", "vfork", "wait4", "waitid",
	}},
	{identity, []string{
		"capget", "capset", "getegid", "geteuid", "getgid", "getgroups", "getresgid",
		"getresuid", "getuid", "setfsgid", "setfsuid", "setgid", "setgroups", "setregid",
		"setresgid", "setresuid", "setreuid", "setuid",
	}},
	{"confining oneself further", []string{
		"landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
	}},
	{"about the system", []string{"getrandom", "sysinfo", "uname"}},
	{"communication inside the run: pipes, System V and POSIX queues of its own IPC namespace", []string{
		"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
		"msgctl", "msgget", "msgrcv", "msgsnd", "pipe", "pipe2", "semctl", "semget", "semop",
		"semtimedop", "shmat", "shmctl", "shmdt", "shmget",
	}},
	{"sockets once made; which can be made is ruled below, where they may go by the cgroup's programs", []string{
		"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt",
		"listen", "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto",
		"setsockopt", "shutdown",
	}},
	{"asynchronous file access on descriptors that are open already (databases)", []string{
		"io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit",
	}},
}

// native is the one ABI of a box, and the calls that exist on it alone.
var native = map[string]struct {
	arch  specs.Arch
	calls []string
}{
	"amd64": {specs.ArchX86_64, []string{"arch_prctl"}},
	"arm64": {specs.ArchAARCH64, nil},
}

// fcntlCommands are those of fcntl(2) that a box has. Not: leases and write-life hints, which
// reach through a read-only mount to the caller's own file.
var fcntlCommands = []uint64{
	unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW,
	unix.F_SETOWN, unix.F_GETOWN, unix.F_SETSIG, unix.F_GETSIG, unix.F_SETOWN_EX, unix.F_GETOWN_EX,
	unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW, unix.F_GETLEASE, unix.F_NOTIFY, unix.F_DUPFD_QUERY, unix.F_CREATED_QUERY,
	unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ, unix.F_GETPIPE_SZ, unix.F_ADD_SEALS, unix.F_GET_SEALS, unix.F_GET_RW_HINT,
}

// limitCalls set limits of resources. One is not the code's to set: that of core dumps, which
// Linux takes for files alone, so that at zero it still hands a crash to the host's
// /proc/sys/kernel/core_pattern where that is a program (systemd-coredump, apport): run as root,
// outside, on the code's memory. At one, and at nothing else, it does not (core(5)). Programs that
// turn their core dumps off are told that it is done.
var limitCalls = []string{"prlimit64", "setrlimit"}

// limits is the number of resources that have limits (RLIM_NLIMITS of Linux).
const limits = 16

// namespaceFlags are the flags of clone(2) that make namespaces. CLONE_NEWTIME shares its
// bit with the exit signal there and cannot be given.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// socketTypeMask leaves the type of socket(2)'s second argument, without SOCK_CLOEXEC and
// SOCK_NONBLOCK.
const socketTypeMask = 0xf

// seccomp is the profile of a box.
func seccomp() *specs.LinuxSeccomp {
	abi := native[runtime.GOARCH]
	eperm, enosys := uint(unix.EPERM), uint(unix.ENOSYS)
	p := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &eperm,
		Architectures:   []specs.Arch{abi.arch}, // any other ABI dies of SIGSYS
	}
	allow := func(names []string, args ...specs.LinuxSeccompArg) {
		p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: names, Action: specs.ActAllow, Args: args})
	}
	for _, g := range allowed {
		allow(g.names)
	}
	if len(abi.calls) > 0 {
		allow(abi.calls)
	}
	allow([]string{"clone"}, masked(0, namespaceFlags, 0))
	// Who holds a filter's listener puts descriptors into the table of whom it holds up
	// (SECCOMP_IOCTL_NOTIF_ADDFD), in another's place and with no call that the kernel's programs see.
	allow([]string{"seccomp"}, masked(1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 0))
	// glibc tries clone3 first; its flags lie in memory, where seccomp cannot see them.
	p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{
		Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &enosys,
	})
	for resource := range uint64(limits) {
		if resource != unix.RLIMIT_CORE {
			allow([]string{"prlimit64"}, equal(1, resource))
			allow([]string{"setrlimit"}, equal(0, resource))
		}
	}
	allow([]string{"prlimit64"}, equal(1, unix.RLIMIT_CORE), masked(2, math.MaxUint64, 0)) // to ask
	done := uint(0)
	p.Syscalls = append(p.Syscalls,
		specs.LinuxSyscall{Names: []string{"setrlimit"}, Action: specs.ActErrno, ErrnoRet: &done, Args: []specs.LinuxSeccompArg{equal(0, unix.RLIMIT_CORE)}},
		specs.LinuxSyscall{Names: []string{"prlimit64"}, Action: specs.ActErrno, ErrnoRet: &done, Args: []specs.LinuxSeccompArg{equal(1, unix.RLIMIT_CORE), {Index: 2, Op: specs.OpNotEqual}}},
	)
	for _, command := range fcntlCommands {
		allow([]string{"fcntl"}, equal(1, command))
	}
	for _, persona := range []uint64{0 /* PER_LINUX */, 0x20000 /* UNAME26 */, 0xffffffff /* query */} {
		allow([]string{"personality"}, equal(0, persona))
	}

	allow([]string{"socketpair"}, equal(0, unix.AF_UNIX))
	allow([]string{"socket"}, equal(0, unix.AF_UNIX))
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []uint64{0, unix.IPPROTO_TCP} {
			allow([]string{"socket"}, equal(0, family), masked(1, socketTypeMask, unix.SOCK_STREAM), equal(2, protocol))
		}
		for _, protocol := range []uint64{0, unix.IPPROTO_UDP} {
			allow([]string{"socket"}, equal(0, family), masked(1, socketTypeMask, unix.SOCK_DGRAM), equal(2, protocol))
		}
	}
	// getaddrinfo and getifaddrs list interfaces through route netlink.
	for _, kind := range []uint64{unix.SOCK_RAW, unix.SOCK_DGRAM} {
		allow([]string{"socket"}, equal(0, unix.AF_NETLINK), masked(1, socketTypeMask, kind), equal(2, unix.NETLINK_ROUTE))
	}
	return p
}

func equal(index uint, value uint64) specs.LinuxSeccompArg {
	// Only the low 32 bits count: the kernel takes an int, and a caller that sets the
	// high half would otherwise fall through to another rule than the kernel's reading.
	return masked(index, 0xffffffff, value)
}

func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}
