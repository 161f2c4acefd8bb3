package container

import (
	"slices"
	"strings"
	"testing"

	contrib "github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// verdict evaluates the profile for one call, as libseccomp does: any rule that matches,
// else the default. It is an errno; 0 is let through.
func verdict(t testing.TB, p *specs.LinuxSeccomp, name string, args ...uint64) unix.Errno {
	t.Helper()
	var all [6]uint64
	copy(all[:], args)
	answer := func(action specs.LinuxSeccompAction, errno *uint) unix.Errno {
		switch action {
		case specs.ActAllow:
			return 0
		case specs.ActErrno:
			return unix.Errno(*errno)
		}
		t.Fatalf("%s: action %s", name, action)
		return 0
	}
	for _, rule := range p.Syscalls {
		if !slices.Contains(rule.Names, name) {
			continue
		}
		match := true
		for _, a := range rule.Args {
			switch a.Op {
			case specs.OpMaskedEqual:
				match = match && all[a.Index]&a.Value == a.ValueTwo
			case specs.OpNotEqual:
				match = match && all[a.Index] != a.Value
			default:
				t.Fatalf("%s: operator %s", name, a.Op)
			}
		}
		if match {
			return answer(rule.Action, rule.ErrnoRet)
		}
	}
	return answer(p.DefaultAction, p.DefaultErrnoRet)
}

// containerdNames are the system calls that containerd's own profile knows of.
func containerdNames() map[string]bool {
	names := map[string]bool{}
	for _, rule := range contrib.DefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}).Syscalls {
		for _, name := range rule.Names {
			names[name] = true
		}
	}
	return names
}

func TestSeccompNames(t *testing.T) {
	p := seccomp()
	if len(p.Architectures) != 1 || len(p.Flags) != 0 || p.ListenerPath != "" {
		t.Errorf("architectures %v, flags %v, listener %q", p.Architectures, p.Flags, p.ListenerPath)
	}
	// A name that is misspelt is silently left out by runc.
	known := containerdNames()
	for _, name := range []string{"ustat", "get_mempolicy", "clone", "clone3", "arch_prctl"} { // for capabilities or ABIs only, or not at all
		known[name] = true
	}
	seen := map[string]bool{}
	conditional := map[string]bool{}
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			if !known[name] {
				t.Errorf("%s: containerd knows no such call", name)
			}
			if len(rule.Args) > 0 {
				conditional[name] = true
				continue
			}
			if seen[name] {
				t.Errorf("%s stands twice", name)
			}
			seen[name] = true
		}
	}
	for name := range conditional {
		if seen[name] {
			t.Errorf("%s has conditions and is let through without", name)
		}
	}
	for _, g := range allowed {
		if g.why == "" || len(g.names) == 0 {
			t.Errorf("a group without reason or calls: %+v", g)
		}
	}
}

// forbidden is what must fail whatever its arguments. Most of it would let code act where
// the kernel's programs do not look.
var forbidden = strings.Fields(`
	io_uring_setup io_uring_enter io_uring_register
	bpf perf_event_open userfaultfd fanotify_init fanotify_mark lookup_dcookie
	ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
	mount umount2 mount_setattr open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick pivot_root chroot statmount listmount
	unshare setns name_to_handle_at open_by_handle_at
	keyctl add_key request_key
	quotactl quotactl_fd modify_ldt iopl ioperm kexec_load kexec_file_load
	init_module finit_module delete_module create_module query_module get_kernel_syms
	swapon swapoff reboot syslog acct vhangup sethostname setdomainname nfsservctl
	clock_settime clock_adjtime settimeofday adjtimex stime memfd_secret
	mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages
	_sysctl sysfs uselib vm86 vm86old vserver tuxcall security`)

func TestSeccompForbids(t *testing.T) {
	p := seccomp()
	for _, name := range forbidden {
		for _, args := range [][]uint64{nil, {1, 1, 1, 1, 1, 1}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}} {
			if got := verdict(t, p, name, args...); got != unix.EPERM {
				t.Errorf("%s%v: %v, want EPERM", name, args, got)
			}
		}
	}
	if got := verdict(t, p, "clone3"); got != unix.ENOSYS {
		t.Errorf("clone3: %v: glibc falls back only from ENOSYS", got)
	}
}

func TestSeccompClone(t *testing.T) {
	p := seccomp()
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID
	for _, flags := range []uint64{0, uint64(unix.SIGCHLD), thread, unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD), unix.CLONE_PIDFD} {
		if got := verdict(t, p, "clone", flags); got != 0 {
			t.Errorf("clone(%#x): %v", flags, got)
		}
	}
	for _, ns := range []uint64{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET} {
		for _, flags := range []uint64{ns, ns | uint64(unix.SIGCHLD), ns | thread, ns | 1<<40} {
			if got := verdict(t, p, "clone", flags); got != unix.EPERM {
				t.Errorf("clone(%#x): %v", flags, got)
			}
		}
	}
}

func TestSeccompListener(t *testing.T) {
	p := seccomp()
	const filter, listener = unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	for flags, want := range map[uint64]unix.Errno{
		0: 0, unix.SECCOMP_FILTER_FLAG_TSYNC: 0, unix.SECCOMP_FILTER_FLAG_LOG: 0,
		listener: unix.EPERM, listener | unix.SECCOMP_FILTER_FLAG_TSYNC: unix.EPERM, listener | 1<<40: unix.EPERM,
	} {
		if got := verdict(t, p, "seccomp", filter, flags); got != want {
			t.Errorf("seccomp(%d, %#x): %v, want %v", filter, flags, got, want)
		}
	}
}

func TestSeccompPersonality(t *testing.T) {
	p := seccomp()
	for persona, want := range map[uint64]unix.Errno{
		0: 0, 0x20000: 0, 0xffffffff: 0, 0xffffffffffffffff: 0, // glibc and friends ask with -1
		0x0008: unix.EPERM, 0x0040000: unix.EPERM, 0x400000: unix.EPERM, 1: unix.EPERM,
	} {
		if got := verdict(t, p, "personality", persona); got != want {
			t.Errorf("personality(%#x): %v, want %v", persona, got, want)
		}
	}
}

// letsSocket is the rule in words: UNIX sockets of any kind, plain TCP and UDP, and route
// netlink, which lists interfaces.
func letsSocket(family, kind, protocol uint32) bool {
	kind &= 0xf
	switch family {
	case unix.AF_UNIX:
		return true
	case unix.AF_INET, unix.AF_INET6:
		return kind == unix.SOCK_STREAM && (protocol == 0 || protocol == unix.IPPROTO_TCP) ||
			kind == unix.SOCK_DGRAM && (protocol == 0 || protocol == unix.IPPROTO_UDP)
	case unix.AF_NETLINK:
		return (kind == unix.SOCK_RAW || kind == unix.SOCK_DGRAM) && protocol == unix.NETLINK_ROUTE
	}
	return false
}

func TestSeccompSockets(t *testing.T) {
	p := seccomp()
	protocols := []uint64{0, 1, 2, 6, 15, 16, 17, 58, 132, 136, 255, 256, 262, 0x0300}
	types := []uint64{0, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_RDM, unix.SOCK_SEQPACKET, unix.SOCK_DCCP, unix.SOCK_PACKET, 11, 15}
	for family := uint64(0); family < 64; family++ {
		for _, kind := range types {
			for _, flags := range []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
				for _, protocol := range protocols {
					want := unix.EPERM
					if letsSocket(uint32(family), uint32(kind|flags), uint32(protocol)) {
						want = 0
					}
					// The kernel reads ints: what stands above them changes nothing.
					for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} {
						if got := verdict(t, p, "socket", family|high, kind|flags|high, protocol|high); got != want {
							t.Fatalf("socket(%#x, %#x, %#x): %v, want %v", family|high, kind|flags|high, protocol|high, got, want)
						}
					}
				}
			}
		}
		want := unix.EPERM
		if family == unix.AF_UNIX {
			want = 0
		}
		for _, high := range []uint64{0, 1 << 32} {
			if got := verdict(t, p, "socketpair", family|high, unix.SOCK_STREAM, 0); got != want {
				t.Errorf("socketpair(%#x): %v, want %v", family|high, got, want)
			}
		}
	}
	// The old way to all of these, on architectures that have it.
	if got := verdict(t, p, "socketcall", 1); got != unix.EPERM {
		t.Errorf("socketcall: %v", got)
	}
}
