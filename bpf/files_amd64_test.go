package bpf_test

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// legacySteps are the calls that only this architecture has.
func legacySteps() []step {
	call := func(number uintptr, path string, arg uintptr) func() (int, error) {
		return func() (int, error) {
			p, err := unix.BytePtrFromString(path)
			if err != nil {
				return -1, err
			}
			fd, _, errno := unix.Syscall(number, uintptr(unsafe.Pointer(p)), arg, 0)
			if errno != 0 {
				return -1, errno
			}
			return int(fd), nil
		}
	}
	return []step{
		{"open", nil, call(unix.SYS_OPEN, "by-open", unix.O_RDWR)},
		{"creat", nil, call(unix.SYS_CREAT, "by-creat", 0o600)},
		{"creat, refused", unix.EISDIR, call(unix.SYS_CREAT, "sub", 0o600)},
	}
}

func legacyOpens(dir string) []audit.Open {
	return []audit.Open{
		{Path: audit.Text(dir + "/by-open"), Access: audit.AccessBoth},
		{Path: audit.Text(dir + "/by-creat"), Access: audit.AccessWrite, Flags: []string{"create", "truncate"}},
		{Path: "sub", Dir: audit.Text(dir), Access: audit.AccessWrite, Flags: []string{"create", "truncate"}, Errno: "EISDIR", Unresolved: true},
	}
}
