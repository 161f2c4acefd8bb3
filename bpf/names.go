package bpf

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// pathFlags are what a path's marks say to the reader of a record.
type pathFlags struct {
	unresolved, truncated, deleted, raced bool
}

// filePath makes a path of what the kernel side sent. A file without a place in the tree
// gets the name that /proc/PID/fd shows.
func filePath(raw []byte, marks kernPathMark) (path audit.Text, flags pathFlags, err error) {
	flags = pathFlags{
		unresolved: marks&kernPathMarkPATH_UNRESOLVED != 0,
		truncated:  marks&kernPathMarkPATH_TRUNCATED != 0,
		deleted:    marks&kernPathMarkPATH_DELETED != 0,
		raced:      marks&kernPathMarkPATH_RACED != 0,
	}
	if marks&kernPathMarkPATH_PSEUDO == 0 {
		if flags.truncated && !flags.unresolved {
			// It starts somewhere below the root, and shall not look as if it did there.
			raw = bytes.TrimPrefix(raw, []byte("/"))
		}
		return audit.Text(raw), flags, nil
	}
	v, name, err := fixed[kernPseudo](raw)
	if err != nil {
		return "", flags, err
	}
	switch v.Magic {
	case unix.PIPEFS_MAGIC:
		return audit.Text(fmt.Sprintf("pipe:[%d]", v.Inode)), flags, nil
	case unix.SOCKFS_MAGIC:
		return audit.Text(fmt.Sprintf("socket:[%d]", v.Inode)), flags, nil
	case unix.NSFS_MAGIC:
		return audit.Text(fmt.Sprintf("%s:[%d]", name, v.Inode)), flags, nil
	case unix.ANON_INODE_FS_MAGIC:
		return audit.Text("anon_inode:" + string(name)), flags, nil
	case unix.TMPFS_MAGIC, unix.HUGETLBFS_MAGIC: // memfd_create and unnamed shared memory: never had a name
		flags.deleted = true
		return audit.Text("/" + string(name)), flags, nil
	}
	return audit.Text(name), flags, nil
}

func access(flags uint32) audit.Access {
	switch {
	case flags&unix.O_PATH != 0:
		return audit.AccessPath
	case flags&unix.O_ACCMODE == unix.O_RDONLY:
		return audit.AccessRead
	case flags&unix.O_ACCMODE == unix.O_WRONLY:
		return audit.AccessWrite
	}
	return audit.AccessBoth
}

var flagNames = []struct {
	bits uint32
	name string
}{
	{unix.O_CREAT, "create"},
	{unix.O_EXCL, "exclusive"},
	{unix.O_TRUNC, "truncate"},
	{unix.O_APPEND, "append"},
	{unix.O_TMPFILE, "tmpfile"}, // before the next, whose bit it contains
	{unix.O_DIRECTORY, "directory"},
}

func openFlags(flags uint32) []string {
	var names []string
	for _, f := range flagNames {
		if flags&f.bits == f.bits {
			names = append(names, f.name)
			flags &^= f.bits
		}
	}
	return names
}

// errno names the error in a call's result, if it is one.
func errno(result int32) string {
	if result >= 0 {
		return ""
	}
	return errnoName(-int64(result))
}

// errnoName includes the numbers that only a tracer sees: a call that a signal
// interrupted and that the kernel will start again, or not.
func errnoName(number int64) string {
	switch number {
	case 512:
		return "ERESTARTSYS"
	case 513:
		return "ERESTARTNOINTR"
	case 514:
		return "ERESTARTNOHAND"
	case 516:
		return "ERESTART_RESTARTBLOCK"
	}
	if name := unix.ErrnoName(unix.Errno(number)); name != "" {
		return name
	}
	return "errno " + strconv.FormatInt(number, 10)
}

func signalName(number uint32) string {
	if name := unix.SignalName(unix.Signal(number)); name != "" {
		return name
	}
	const realtime = 34 // glibc's SIGRTMIN
	if number >= realtime {
		return "SIGRTMIN+" + strconv.Itoa(int(number-realtime))
	}
	return "signal " + strconv.Itoa(int(number))
}
