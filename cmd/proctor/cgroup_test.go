package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// attemptEnv makes the test binary try a socket and print how that went.
const attemptEnv = "PROCTOR_TEST_ATTEMPT"

// attempt connects to a closed port of an address: "ADDRESS KIND".
func attempt(what string) string {
	address, kind, _ := strings.Cut(what, " ")
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}})
	if address == "::1" {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 9, Addr: [16]byte{15: 1}}
	}
	number := unix.SOCK_STREAM
	if kind == "SOCK_DGRAM" {
		number = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, number, 0)
	if err != nil {
		return "socket: " + unix.ErrnoName(err.(syscall.Errno))
	}
	if err = unix.Connect(fd, to); err != nil {
		return "connect: " + unix.ErrnoName(err.(syscall.Errno))
	}
	if err = unix.Send(fd, []byte("x"), 0); err != nil {
		return "send: " + unix.ErrnoName(err.(syscall.Errno))
	}
	return "worked"
}

// inCgroup makes the attempt from a process that is born in a cgroup.
func inCgroup(t *testing.T, group, address, kind string) string {
	t.Helper()
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(cleanEnv(), attemptEnv+"="+address+" "+kind)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Whoever takes the kernel's programs away takes the supervisor's runs with them, until it
// is started again.
func TestRunNeedsEnforcement(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	for name, takeAway := range map[string]func(s *supervisor) error{
		// The programs stay attached to the group that is gone.
		"cgroup made again": func(s *supervisor) error {
			dir := "/sys/fs/cgroup/unified/" + s.group
			if _, err := os.Stat(dir); err != nil {
				dir = "/sys/fs/cgroup/" + s.group
			}
			return errors.Join(os.Remove(dir), os.Mkdir(dir, 0o755))
		},
		"pin removed": func(s *supervisor) error {
			pins, err := filepath.Glob(s.dir + "/run/kernel/bpf/links/connect4*")
			if err != nil || len(pins) != 1 {
				return fmt.Errorf("pins of connect4: %q, %v", pins, err)
			}
			return os.Remove(pins[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t)
			if err := takeAway(s); err != nil {
				t.Fatal(err)
			}
			v := s.verdict(t, "sh", "true")
			if v.Status != audit.StatusError || v.ExitCode != 125 || !strings.Contains(v.Reason, "nothing is run unwatched") {
				t.Errorf("%s, %d: %s", v.Status, v.ExitCode, v.Reason)
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			if err := s.start(); err != nil {
				t.Fatal(err)
			}
			if v := s.verdict(t, "sh", "true"); v.Status != audit.StatusOK {
				t.Errorf("started again: %s: %s", v.Status, v.Reason)
			}
		})
	}
}
