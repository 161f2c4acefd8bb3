package main_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// pass runs a program with the descriptor as its input, as a client of the API can without being
// ours, and returns what the supervisor has against it.
func (s *supervisor) pass(f *os.File) error {
	v, err := (&api.Client{Socket: s.socket}).Run(context.Background(), &api.RunRequest{Language: "sh", Name: "x.sh", Code: []byte("cat /inputs/a"), Inputs: []audit.Text{"a"}}, []*os.File{f}, api.RunHandler{
		Admitted: func(string) {}, Stdout: func([]byte) error { return nil }, Stderr: func([]byte) error { return nil },
	})
	if err == nil && v.Status != audit.StatusOK {
		return errors.New(v.Reason)
	}
	return err
}

// refused fails the test unless the descriptor is refused for the reason; "" is for being taken.
func (s *supervisor) refused(t *testing.T, what string, f *os.File, why string) {
	t.Helper()
	want := ""
	if why != "" {
		want = `input "a": ` + why + ": pass a regular file that you can read"
	}
	got := ""
	if err := s.pass(f); err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// TestDescriptorKinds passes each kind of descriptor there is.
func TestDescriptorKinds(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	own := func(fd int, err error) *os.File {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "descriptor")
		t.Cleanup(func() { f.Close() })
		return f
	}
	open := func(path string, flags int) *os.File {
		t.Helper()
		return own(unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0))
	}
	again := func(f *os.File, flags int) *os.File {
		t.Helper()
		return open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), flags)
	}
	memory := func(flags, seals int) *os.File {
		t.Helper()
		f := own(unix.MemfdCreate("m", flags|unix.MFD_CLOEXEC))
		if _, err := f.WriteString("memory"); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); seals != 0 && err != nil {
			t.Fatal(err)
		}
		return f
	}
	const (
		path   = "was opened with O_PATH, which gives no right to read it"
		handle = "is an event, a timer or another handle of the kernel's"
		word   = "is no file with content of its own, but the kernel's word (as /proc and /sys hold)"
	)
	pidfd := own(unix.PidfdOpen(os.Getpid(), 0))
	process := "is a process"
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(pidfd.Fd()), &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type == unix.ANON_INODE_FS_MAGIC { // before Linux 6.9
		process = handle
	}
	stream, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own(stream[1], nil)

	s.refused(t, "a file", open(file, unix.O_RDONLY), "")
	s.refused(t, "a path, opened again for reading", again(open(file, unix.O_PATH), unix.O_RDONLY), "")
	s.refused(t, "memory", memory(0, 0), "")
	s.refused(t, "memory that is sealed", memory(unix.MFD_ALLOW_SEALING, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL), "")
	s.refused(t, "memory, opened again for reading", again(memory(0, 0), unix.O_RDONLY), "")
	s.refused(t, "memory, opened again for writing", again(memory(0, 0), unix.O_WRONLY), "was not opened for reading")
	s.refused(t, "a file without a name", open(dir, unix.O_TMPFILE|unix.O_RDWR), "")
	s.refused(t, "a path", open(file, unix.O_PATH), path)
	s.refused(t, "a path of a link", open("/proc/self/exe", unix.O_PATH|unix.O_NOFOLLOW), path)
	s.refused(t, "a path of a directory", open(dir, unix.O_PATH|unix.O_DIRECTORY), path)
	s.refused(t, "a path of a FIFO", open(fifo, unix.O_PATH), path)
	s.refused(t, "a directory", open(dir, unix.O_RDONLY), "is a directory: a client passes the files beneath it")
	s.refused(t, "a FIFO", open(fifo, unix.O_RDWR), "is a FIFO")
	s.refused(t, "a FIFO for reading", open(fifo, unix.O_RDONLY), "is a FIFO")
	s.refused(t, "a stream socket", own(stream[0], nil), "is a socket")
	for what, socket := range map[string][2]int{"UNIX datagrams": {unix.AF_UNIX, unix.SOCK_DGRAM}, "TCP": {unix.AF_INET, unix.SOCK_STREAM}, "UDP": {unix.AF_INET6, unix.SOCK_DGRAM}, "netlink": {unix.AF_NETLINK, unix.SOCK_RAW}} {
		s.refused(t, "a socket of "+what, own(unix.Socket(socket[0], socket[1]|unix.SOCK_CLOEXEC, 0)), "is a socket")
	}
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/ptmx"} {
		s.refused(t, device, open(device, unix.O_RDWR|unix.O_NOCTTY), "is a device")
	}
	for _, ns := range []string{"mnt", "net", "user", "pid"} {
		s.refused(t, "a namespace: "+ns, open("/proc/self/ns/"+ns, unix.O_RDONLY), "is a namespace")
	}
	s.refused(t, "a process", pidfd, process)
	s.refused(t, "a message queue", messageQueue(t), "is a message queue")
	s.refused(t, "an event", own(unix.Eventfd(1, unix.EFD_CLOEXEC)), handle)
	s.refused(t, "a timer", own(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)), handle)
	s.refused(t, "an epoll", own(unix.EpollCreate1(unix.EPOLL_CLOEXEC)), handle)
	s.refused(t, "an inotify", own(unix.InotifyInit1(unix.IN_CLOEXEC)), handle)
	s.refused(t, "signals", own(unix.Signalfd(-1, &unix.Sigset_t{}, unix.SFD_CLOEXEC)), handle)
	for _, file := range []string{"/proc/self/status", "/proc/self/mem", "/proc/sys/kernel/hostname", "/proc/kallsyms", "/sys/kernel/uevent_seqnum", "/sys/kernel/btf/vmlinux"} {
		s.refused(t, file, open(file, unix.O_RDONLY), word)
	}
	s.refused(t, "a detached mount of the kernel's", openAt(t, own(unix.OpenTree(unix.AT_FDCWD, "/proc", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)), "version"), word)
}

func openAt(t *testing.T, dir *os.File, name string) *os.File {
	t.Helper()
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	return f
}

// messageQueue is one without a name, as soon as this returns.
func messageQueue(t *testing.T) *os.File {
	t.Helper()
	name, err := unix.BytePtrFromString("proctor-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600, 0, 0, 0)
	if errno != 0 {
		t.Fatalf("mq_open: %v", errno)
	}
	f := os.NewFile(fd, "queue")
	t.Cleanup(func() { f.Close() })
	if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
		t.Fatalf("mq_unlink: %v", errno)
	}
	return f
}

// An overlay of the host's is taken; one that a user made, which may lie on FUSE, is not.
func TestDescriptorOnOverlay(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	for _, sub := range []string{"a", "b", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	merged, options := filepath.Join(dir, "merged"), "lowerdir="+dir+"/a:"+dir+"/b"
	open := func(path string) *os.File {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	t.Run("of the host", func(t *testing.T) {
		if err := unix.Mount("overlay", merged, "overlay", unix.MS_NOSUID, options); err != nil {
			t.Fatal(err)
		}
		// The supervisor closes the file a moment after the verdict.
		defer eventually(t, 20*time.Second, func() error { return unix.Unmount(merged, 0) })
		f := open(merged + "/file")
		defer f.Close()
		s.refused(t, "a file on it", f, "")
	})
	t.Run("of a user", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), testenv.Tool(t, "unshare"), "--user", "--map-root-user", "--mount", "--", "sh", "-c",
			`mount -t overlay -o "$1" overlay "$2" && echo mounted && read gone`, "sh", options, merged)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { in.Close(); _ = cmd.Wait() }()
		if n, err := out.Read(make([]byte, 16)); n == 0 {
			t.Fatalf("%v: %s", err, said.String())
		}
		f := open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/root" + merged + "/file")
		defer f.Close()
		s.refused(t, "a file on it", f, "lies on an overlay that is not the host's but a user's own, which may be made of anything")
	})
}
