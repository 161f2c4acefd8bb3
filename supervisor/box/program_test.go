package box

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

// actVariable names what this binary is to do instead of testing.
const actVariable = "PROCTOR_BOX_ACT"

func TestMain(m *testing.M) {
	switch os.Getenv(actVariable) {
	case "":
		os.Exit(m.Run())
	case "tell":
		tell()
	case "spoiled init":
		spoiledInit()
	}
}

// seen is what a program finds when it is started.
type seen struct {
	Argv, Env   []string
	Dir         string
	CPUs        []int
	Session     int // as its own process number: 1 when it leads one
	Status      map[string]string
	Descriptors []string
}

// tell writes what it finds to stdout.
func tell() {
	s := seen{Argv: os.Args, Env: os.Environ(), Status: map[string]string{}}
	s.Dir, _ = os.Getwd()
	var set unix.CPUSet
	_ = unix.SchedGetaffinity(0, &set)
	for i := range 1024 {
		if set.IsSet(i) {
			s.CPUs = append(s.CPUs, i)
		}
	}
	if sid, err := unix.Getsid(0); err == nil && sid == os.Getpid() {
		s.Session = 1
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			s.Status[key] = strings.TrimSpace(value)
		}
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		// The Go runtime's own, and the one that lists them.
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/sys/fs/cgroup/") && !strings.HasSuffix(to, "/fd") {
			s.Descriptors = append(s.Descriptors, e.Name()+" "+strings.SplitN(to, ":", 2)[0])
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(s)
}

// spoiledInit becomes init with what a careless parent would leave it.
func spoiledInit() {
	runtime.LockOSThread()
	var mask unix.Sigset_t
	mask.Val[0] = 1<<(unix.SIGUSR1-1) | 1<<(unix.SIGCHLD-1) | 1<<(unix.SIGTERM-1)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil); err != nil {
		panic(err)
	}
	unix.Umask(0o777)
	for _, fd := range []int{3, 4} {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGUSR2, unix.SIGCHLD, unix.SIGSYS} {
		ignore := [4]uint64{1} // struct sigaction of the kernel, whose first field SIG_IGN is
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0); errno != 0 {
			panic(errno)
		}
	}
	panic(syscall.Exec(os.Args[1], os.Args[1:], []string{"OF_INIT=1"}))
}

// initBinary compiles init; sanitized, a bug in it is a crash.
func initBinary(t testing.TB, sanitized bool) string {
	t.Helper()
	cc := compiler(t)
	flags := []string{"-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror"}
	name := "init"
	if sanitized {
		flags, name = []string{"-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"}, "init-sanitized"
	}
	binary := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command(cc, append(flags, "-o", binary, "init/init.c")...).CombinedOutput(); err != nil {
		t.Fatalf("compile init: %v\n%s", err, out)
	}
	return binary
}

// An initProcess is init, outside of any box.
type initProcess struct {
	*Control
	cmd  *exec.Cmd
	conn *net.UnixConn
}

// startInit runs a command, which init is or becomes, with the socket's path added, until init is ready.
func startInit(t testing.TB, cmd *exec.Cmd) *initProcess {
	t.Helper()
	path := filepath.Join(testenv.Dir(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	l.SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	c, err := NewControl(conn)
	if err != nil {
		t.Fatal(err)
	}
	return &initProcess{c, cmd, conn}
}

// pipes are the program's streams; ours are the other ends.
func pipes(t testing.TB) (theirs [3]*os.File, stdin *os.File, stdout *os.File) {
	t.Helper()
	var err error
	if theirs[0], stdin, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if stdout, theirs[1], err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if theirs[2], err = os.OpenFile("/dev/null", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range append(theirs[:], stdin, stdout) {
			f.Close()
		}
	})
	stdout.SetReadDeadline(time.Now().Add(20 * time.Second))
	return theirs, stdin, stdout
}

// run lets init run a program to its end and returns what it wrote.
func (p *initProcess) run(t testing.TB, program Program, cpus CPUSet) (Exit, string) {
	t.Helper()
	theirs, stdin, stdout := pipes(t)
	program.Stdio = theirs
	if err := p.Go(program, cpus); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	for _, f := range theirs {
		f.Close()
	}
	out, err := io.ReadAll(stdout)
	if err != nil {
		t.Fatalf("stdout: %v", err)
	}
	started := 0
	exit, err := p.Wait(func(pid int) { started = pid })
	if err != nil {
		t.Fatalf("init went without a word: %v", err)
	}
	if started <= 0 && exit.Err == nil {
		t.Errorf("started as %d", started)
	}
	return exit, string(out)
}

// ended waits for init itself.
func (p *initProcess) ended(t testing.TB) syscall.WaitStatus {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func shell(script string, args ...string) Program {
	return Program{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"}
}
