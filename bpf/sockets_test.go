package bpf_test

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// actBind gives sockets addresses, as bindsMade says. Its argument is a directory.
func actBind(args []string) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	var any6 [16]byte
	mapped := [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}
	for i, s := range []struct {
		family, kind int
		at           unix.Sockaddr
		listen       bool
		want         error
	}{
		{unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: 4670, Addr: [4]byte{127, 0, 0, 1}}, true, nil},
		{unix.AF_INET6, unix.SOCK_STREAM, &unix.SockaddrInet6{Port: 4671, Addr: any6}, true, nil},
		{unix.AF_INET6, unix.SOCK_DGRAM, &unix.SockaddrInet6{Port: 4672, Addr: mapped}, false, nil},
		{unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: 4670, Addr: [4]byte{127, 0, 0, 1}}, false, unix.EADDRINUSE},
		{unix.AF_INET, unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: 4673, Addr: [4]byte{192, 0, 2, 1}}, false, unix.EADDRNOTAVAIL},
		{unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "socket"}, true, nil},
		{unix.AF_UNIX, unix.SOCK_DGRAM, &unix.SockaddrUnix{Name: "@abs\x00tract"}, false, nil},
		{unix.AF_UNIX, unix.SOCK_DGRAM, &unix.SockaddrUnix{Name: "socket"}, false, unix.EADDRINUSE},
	} {
		fd, err := unix.Socket(s.family, s.kind, 0)
		if err != nil {
			return err
		}
		if err := failsWith(unix.Bind(fd, s.at), s.want); err != nil {
			return fmt.Errorf("bind %d: %w", i, err)
		}
		if s.listen {
			if err := unix.Listen(fd, 1); err != nil {
				return fmt.Errorf("listen %d: %w", i, err)
			}
		}
	}
	return nil
}

func TestBinds(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "bind", 0)
	dir := testenv.Dir(t)
	b.act(t, "bind", dir)

	type record struct {
		Kind audit.Kind
		Net  audit.Network
	}
	tcp4 := audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("127.0.0.1"), Port: 4670}
	tcp6 := audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("::"), Port: 4671}
	file := audit.Network{Protocol: "unix", Name: audit.Text(dir + "/socket")}
	failed := func(n audit.Network, errno string) audit.Network { n.Errno = errno; return n }
	want := []record{
		{audit.KindBind, tcp4}, {audit.KindListen, tcp4},
		{audit.KindBind, tcp6}, {audit.KindListen, tcp6},
		{audit.KindBind, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("127.0.0.1"), Port: 4672, Mapped: true}},
		{audit.KindBind, failed(tcp4, "EADDRINUSE")},
		{audit.KindBind, audit.Network{Protocol: "udp", Address: netip.MustParseAddr("192.0.2.1"), Port: 4673, Errno: "EADDRNOTAVAIL"}},
		{audit.KindBind, file}, {audit.KindListen, file},
		{audit.KindBind, audit.Network{Protocol: "unix", Name: "\x00abs\x00tract"}},
		{audit.KindBind, audit.Network{Protocol: "unix", Name: "socket", Dir: audit.Text(dir), Errno: "EADDRINUSE"}},
	}
	var got []record
	for _, e := range b.record(t) {
		if e.Kind == audit.KindBind || e.Kind == audit.KindListen {
			got = append(got, record{e.Kind, *e.Net})
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// actReuse makes two processes of one number, one after the other. Its argument is a file
// that the second alone opens.
func actReuse(args []string) error {
	first, err := forkedOpen("/etc/passwd")
	if err != nil {
		return err
	}
	// The next number given out in this PID namespace is the one after this.
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(first-1)), 0); err != nil {
		return err
	}
	second, err := forkedOpen(args[0])
	if err != nil {
		return err
	}
	if first != second {
		return fmt.Errorf("the processes are %d and %d", first, second)
	}
	return nil
}

// forkedOpen has a process open a file and returns its number in this namespace.
func forkedOpen(path string) (int, error) {
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", ": <" + path}, &os.ProcAttr{Files: []*os.File{nil, nil, os.Stderr}})
	if err != nil {
		return 0, err
	}
	_, err = p.Wait()
	return p.Pid, err
}

func TestNumberUsedAgain(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "reuse", 0)
	b.act(t, "reuse", "/etc/group")
	starts := map[string]uint64{}
	pids := map[string]uint32{}
	made := map[uint64]bool{}
	for _, e := range b.record(t) {
		if e.Kind == audit.KindFork {
			made[e.Fork.Start] = true
		}
		if e.Kind == audit.KindOpen && (e.Open.Path == "/etc/passwd" || e.Open.Path == "/etc/group") && e.Process.Comm == "sh" {
			starts[string(e.Open.Path)], pids[string(e.Open.Path)] = e.Process.Start, e.Process.PID
		}
	}
	one, two := "/etc/passwd", "/etc/group"
	if pids[one] == 0 || pids[one] != pids[two] {
		t.Errorf("numbers are %v", pids)
	}
	if starts[one] == starts[two] || !made[starts[one]] || !made[starts[two]] {
		t.Errorf("starts are %v, of those made %v", starts, made)
	}
}
