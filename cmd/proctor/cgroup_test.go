package main_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
