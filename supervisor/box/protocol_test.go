package box

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"proctor/testenv"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// compiler is the C compiler.
func compiler(t testing.TB) string {
	t.Helper()
	name := os.Getenv("CC")
	if name == "" {
		name = "cc"
	}
	return testenv.Tool(t, name)
}

// TestProtocol holds protocol.go against init/protocol.h as a compiler reads it.
func TestProtocol(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "layout.c")
	var c strings.Builder
	c.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"protocol.h\"\nint main(void) {\n")
	var want strings.Builder
	same := func(expression string, value any) {
		fmt.Fprintf(&c, "printf(\"%%s = %%lld\\n\", %q, (long long)(%s));\n", expression, expression)
		fmt.Fprintf(&want, "%s = %d\n", expression, value)
	}
	same("GO_MAGIC", goMagic)
	same("GO_MAX", goMax)
	same("CPU_WORDS", cpuWords)
	var h goHeader
	same("sizeof(struct go)", unsafe.Sizeof(h))
	same("offsetof(struct go, magic)", unsafe.Offsetof(h.Magic))
	same("offsetof(struct go, length)", unsafe.Offsetof(h.Length))
	same("offsetof(struct go, argc)", unsafe.Offsetof(h.Argc))
	same("offsetof(struct go, envc)", unsafe.Offsetof(h.Envc))
	same("offsetof(struct go, cpus)", unsafe.Offsetof(h.CPUs))
	same("sizeof(((struct go *)0)->magic)", unsafe.Sizeof(h.Magic))
	same("sizeof(((struct go *)0)->length)", unsafe.Sizeof(h.Length))
	same("sizeof(((struct go *)0)->argc)", unsafe.Sizeof(h.Argc))
	same("sizeof(((struct go *)0)->envc)", unsafe.Sizeof(h.Envc))
	same("sizeof(((struct go *)0)->cpus)", unsafe.Sizeof(h.CPUs))
	var r report
	same("sizeof(struct report)", unsafe.Sizeof(r))
	same("offsetof(struct report, kind)", unsafe.Offsetof(r.Kind))
	same("offsetof(struct report, detail)", unsafe.Offsetof(r.Detail))
	same("offsetof(struct report, value)", unsafe.Offsetof(r.Value))
	same("sizeof(((struct report *)0)->kind)", unsafe.Sizeof(r.Kind))
	same("sizeof(((struct report *)0)->detail)", unsafe.Sizeof(r.Detail))
	same("sizeof(((struct report *)0)->value)", unsafe.Sizeof(r.Value))
	same("((struct report *)0)->value - 1 < 0 ? -1 : 1", -1) // signed
	same("REPORT_READY", reportReady)
	same("REPORT_STARTED", reportStarted)
	same("REPORT_FAILED", reportFailed)
	same("REPORT_EXITED", reportExited)
	for s, name := range map[step]string{1: "STEP_MESSAGE", 2: "STEP_FORK", 3: "STEP_STDIO", 4: "STEP_CHDIR", 5: "STEP_EXEC"} {
		same(name, s)
		if stepNames[s] == "" {
			t.Errorf("step %d has no name", s)
		}
	}
	if len(stepNames) != 5 {
		t.Errorf("%d steps have names", len(stepNames))
	}
	c.WriteString("return 0;\n}\n")
	// What is only typed, not run: no pointer is followed.
	text := strings.Replace(c.String(), "((struct report *)0)->value - 1 < 0 ? -1 : 1)", "(__typeof__(((struct report *)0)->value))-1 < 0 ? -1 : 1)", 1)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "layout")
	if out, err := exec.Command(compiler(t), "-std=gnu11", "-Wall", "-Werror", "-I", "init", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Error(diff)
	}
}

// pair is the two ends of a conversation, without an init at the other.
func pair(t testing.TB) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return conns[0], conns[1]
}

func (r report) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))
}

func TestNewControlRefuses(t *testing.T) {
	for name, said := range map[string][]byte{
		"nothing":          nil,
		"half a report":    report{Kind: reportReady}.bytes()[:7],
		"something else":   report{Kind: reportExited}.bytes(),
		"nothing sensible": []byte("HTTP/1.1 400 Bad Request\r\n"),
	} {
		ours, theirs := pair(t)
		if _, err := theirs.Write(said); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if _, err := NewControl(ours); err == nil || !strings.HasPrefix(err.Error(), "box init: ") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ours.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the connection is still open: %v", name, err)
		}
	}
	ours, _ := pair(t)
	ours.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := NewControl(ours); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("init that says nothing: %v", err)
	}
}

func TestControlWait(t *testing.T) {
	started, failed := report{Kind: reportStarted, Value: 7}, report{Kind: reportFailed, Detail: 5, Value: int64(unix.ENOENT)}
	exited := func(status int64) report { return report{Kind: reportExited, Value: status} }
	for _, test := range []struct {
		name    string
		reports []report
		want    Exit
		start   *StartError
		err     bool
	}{
		{"code", []report{started, exited(3 << 8)}, Exit{Code: 3}, nil, false},
		{"signal", []report{started, exited(9)}, Exit{Signal: 9}, nil, false},
		{"signal with core", []report{started, exited(11 | 0x80)}, Exit{Signal: 11}, nil, false},
		{"exec failed", []report{started, failed, exited(125 << 8)}, Exit{}, &StartError{Step: "exec", Errno: unix.ENOENT, Path: "/x"}, false},
		{"exec failed, said first", []report{failed, started, exited(125 << 8)}, Exit{}, &StartError{Step: "exec", Errno: unix.ENOENT, Path: "/x"}, false},
		{"failed before there was a program", []report{{Kind: reportFailed, Detail: 1, Value: int64(unix.EBADMSG)}}, Exit{}, &StartError{Step: "read the go message", Errno: unix.EBADMSG, Path: "/x"}, false},
		{"gone without a word", []report{started}, Exit{}, nil, true},
		{"gone at once", nil, Exit{}, nil, true},
		{"nothing sensible", []report{{Kind: 99}}, Exit{}, nil, true},
		{"only stopped", []report{started, exited(0x137f)}, Exit{}, nil, true},
		{"ready again", []report{{Kind: reportReady}}, Exit{}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ours, theirs := pair(t)
			c := &Control{conn: ours, path: "/x"}
			for _, r := range test.reports {
				if _, err := theirs.Write(r.bytes()); err != nil {
					t.Fatal(err)
				}
			}
			theirs.Close()
			var pids []int
			got, err := c.Wait(func(pid int) { pids = append(pids, pid) })
			if (err != nil) != test.err {
				t.Fatalf("error %v", err)
			}
			var start *StartError
			errors.As(got.Err, &start)
			if diff := cmp.Diff(test.start, start); diff != "" {
				t.Error(diff)
			}
			got.Err = nil
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			for _, pid := range pids {
				if pid != 7 {
					t.Errorf("started as %d", pid)
				}
			}
		})
	}
}

// Whatever comes from a box, its reading ends with an answer or an error.
func FuzzControl(f *testing.F) {
	f.Add(report{Kind: reportReady}.bytes())
	f.Add(append(report{Kind: reportReady}.bytes(), report{Kind: reportExited, Value: 1 << 8}.bytes()...))
	f.Add(append(report{Kind: reportReady}.bytes(), report{Kind: reportFailed, Detail: 77, Value: -1}.bytes()...))
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := pair(t)
		if len(said) > 64<<10 {
			said = said[:64<<10] // what the socket takes before anybody reads
		}
		if _, err := theirs.Write(said); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		c, err := NewControl(ours)
		if err != nil {
			return
		}
		exit, err := c.Wait(func(int) {})
		if err == nil && exit.Err != nil && exit.Err.Error() == "" {
			t.Fatal("an error that says nothing")
		}
		if err == nil && (exit.Code < 0 || exit.Code > 255 || exit.Signal < 0 || exit.Signal > 127) {
			t.Fatalf("exit %+v", exit)
		}
		c.Close()
	})
}

func TestControlGoRefuses(t *testing.T) {
	ours, theirs := pair(t)
	c := &Control{conn: ours}
	stdio := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	for name, test := range map[string]struct {
		p    Program
		says string
	}{
		"no program":             {Program{Dir: "/"}, "no program"},
		"NUL in an argument":     {Program{Dir: "/", Argv: []string{"/x", "a\x00b"}}, "NUL"},
		"NUL in the environment": {Program{Dir: "/", Argv: []string{"/x"}, Env: []string{"A=\x00"}}, "NUL"},
		"NUL in the directory":   {Program{Dir: "/\x00", Argv: []string{"/x"}}, "NUL"},
		"too long":               {Program{Dir: "/", Argv: []string{"/x", strings.Repeat("a", goMax)}}, "too long"},
	} {
		test.p.Stdio = stdio
		if err := c.Go(test.p, CPUSet{}); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Go(Program{Argv: []string{"/x", strings.Repeat("a", goMax)}, Stdio: stdio}, CPUSet{}); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	ours.Close()
	if data, _ := io.ReadAll(theirs); len(data) > 0 {
		t.Errorf("%d bytes were sent all the same", len(data))
	}
}

func TestCPUSet(t *testing.T) {
	var s CPUSet
	for _, n := range []int{0, 63, 64, 1023, -1, 1024, 1 << 20} {
		s.Set(n)
	}
	if want := (CPUSet{0: 1 | 1<<63, 1: 1, 15: 1 << 63}); s != want {
		t.Errorf("got %x", s)
	}
}

func TestStartErrorUnwraps(t *testing.T) {
	err := error(&StartError{Step: "exec", Errno: syscall.ENOENT, Path: "/a\nb"})
	if !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
}

func TestValidate(t *testing.T) {
	good := Limits{Timeout: 1, Memory: MinMemory, CPUs: MinCPUs, CPUTime: MinCPUTime, Processes: MinProcesses, ScratchBytes: MinScratchBytes, ScratchInodes: MinScratchInodes, OutputBytes: 1, OpenFiles: 16, AuditEvents: MinAuditEvents}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Limits){
		"timeout": func(l *Limits) { l.Timeout = 0 }, "memory": func(l *Limits) { l.Memory-- }, "cpus": func(l *Limits) { l.CPUs /= 2 },
		"cpu time": func(l *Limits) { l.CPUTime-- },
		"pids":     func(l *Limits) { l.Processes-- }, "scratch": func(l *Limits) { l.ScratchBytes-- }, "scratch inodes": func(l *Limits) { l.ScratchInodes-- },
		"output": func(l *Limits) { l.OutputBytes-- }, "open files": func(l *Limits) { l.OpenFiles-- }, "audit events": func(l *Limits) { l.AuditEvents-- },
	} {
		l := good
		change(&l)
		if err := l.Validate(); err == nil || !strings.HasPrefix(err.Error(), name+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
