package confine_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/gateway/confine"
)

const confinedVariable = "PROCTOR_TEST_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confinedVariable) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if err := confine.Confine(); err != nil {
		fmt.Println("confine:", err)
		os.Exit(1)
	}
	confined(l)
	os.Exit(0)
}

// confined tries what a gateway that is taken over would, and what it has to do.
func confined(l net.Listener) {
	for name, try := range map[string]func() error{
		"open":        func() error { _, err := os.Open("/etc/passwd"); return err },
		"openat2":     func() error { _, err := unix.Openat2(unix.AT_FDCWD, "/etc/passwd", &unix.OpenHow{}); return err },
		"stat":        func() error { return unix.Stat("/etc/passwd", &unix.Stat_t{}) },
		"proc":        func() error { _, err := os.ReadFile("/proc/self/status"); return err },
		"exec":        func() error { return unix.Exec("/bin/true", []string{"true"}, nil) },
		"fork":        func() error { return exec.Command("/bin/true").Run() },
		"unix socket": func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"packet socket": func() error {
			_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
			return err
		},
		"netlink":  func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err },
		"kill":     func() error { return unix.Kill(unix.Getppid(), 0) },
		"tgkill":   func() error { return unix.Tgkill(1, 1, 0) },
		"ptrace":   func() error { return unix.PtraceAttach(1) },
		"setuid":   func() error { return unix.Setuid(0) },
		"unshare":  func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"mount":    func() error { return unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "") },
		"bpf":      func() error { _, _, errno := unix.Syscall(unix.SYS_BPF, 0, 0, 0); return errno },
		"io_uring": func() error { _, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return errno },
		"memfd":    func() error { _, err := unix.MemfdCreate("x", 0); return err },
		"read of another's memory": func() error {
			_, err := unix.ProcessVMReadv(1, nil, nil, 0)
			return err
		},
	} {
		if err := try(); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
			fmt.Printf("%s: %v\n", name, err)
		}
	}
	// Sockets, threads and memory go on.
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			runtime.LockOSThread() // one of its own
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				fmt.Println("dial:", err)
				return
			}
			fmt.Fprint(c, string(make([]byte, 1<<16)))
			c.Close()
		})
	}
	for range 50 {
		c, err := l.Accept()
		if err != nil {
			fmt.Println("accept:", err)
			break
		}
		all.Go(func() {
			if n, err := c.(*net.TCPConn).WriteTo(discard{}); n != 1<<16 || err != nil {
				fmt.Println("read:", n, err)
			}
		})
	}
	all.Wait()
	runtime.GC()
	fmt.Println("done")
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestConfine(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confinedVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v: %s", err, out)
	}
}
