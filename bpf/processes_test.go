package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/testenv"
)

func texts(args ...string) (argv []audit.Text) {
	for _, a := range args {
		argv = append(argv, audit.Text(a))
	}
	return argv
}

// only returns the one event of a kind that ok holds for.
func only(t *testing.T, events []audit.Event, kind audit.Kind, ok func(audit.Event) bool) audit.Event {
	t.Helper()
	found := matching(events, func(e audit.Event) bool { return e.Kind == kind && ok(e) })
	if len(found) != 1 {
		t.Fatalf("%d events, want one %s, of%s", len(found), kind, describe(events))
	}
	return found[0]
}

func whichever(audit.Event) bool { return true }

func TestExec(t *testing.T) {
	h := newHost(t)
	dir := testenv.Dir(t)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/true -x\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.EvalSymlinks("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("l", 20_000)
	tests := []struct {
		name      string
		args      []string
		argv      []audit.Text
		truncated bool
	}{
		{"plain", []string{"/bin/true", "a", "", "b c"}, texts("/bin/true", "a", "", "b c"), false},
		{"bytes", []string{"/bin/true", "\xff\n\x1b[0m"}, texts("/bin/true", "\xff\n\x1b[0m"), false},
		{"last one empty", []string{"/bin/true", ""}, texts("/bin/true", ""), false},
		{"script", []string{script, "y"}, texts("/bin/true", "-x", script, "y"), false},
		{"long", []string{"/bin/true", long}, texts("/bin/true", long), false},
		{"too long", []string{"/bin/true", long, long}, texts("/bin/true", long, long[:32768-len("/bin/true")-20_000-2]), true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := h.box(t, fmt.Sprintf("exec%d", i), 0)
			output(t, b.command(tt.args[0], tt.args[1:]...))
			exec := only(t, b.record(t), audit.KindExec, whichever).Exec
			if string(exec.File) != program {
				t.Errorf("file is %q, want %q", exec.File, program)
			}
			if !slices.Equal(exec.Argv, tt.argv) || (exec.ArgvBytes > 0) != tt.truncated {
				t.Errorf("argv is %.200q (truncated: %v), want %.200q", exec.Argv, exec.ArgvBytes > 0, tt.argv)
			}
		})
	}
}

func TestExecOfFileWithoutName(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "memfd", 0)
	b.act(t, "status", "memfd")
	exec := only(t, b.record(t), audit.KindExec, func(e audit.Event) bool {
		return len(e.Exec.Argv) == 1 && e.Exec.Argv[0] == "innocent"
	}).Exec
	if exec.File != "/memfd:program" || !exec.Deleted {
		t.Errorf("exec is %+v", exec)
	}
}

// actStatus ends this process in a particular way.
func actStatus(args []string) error {
	switch args[0] {
	case "leader first":
		// The leader ends alone, with a code of its own; what counts is the group's.
		if unix.Gettid() != unix.Getpid() {
			return errors.New("not on the leader")
		}
		go func() {
			runtime.LockOSThread()
			for { // until the leader is a zombie
				stat, err := os.ReadFile("/proc/self/stat")
				if err != nil || strings.Contains(string(stat), ") Z ") {
					break
				}
			}
			unix.Exit(9)
		}()
		unix.RawSyscall(unix.SYS_EXIT, 3, 0, 0)
	case "memfd":
		program, err := os.ReadFile("/bin/true")
		if err != nil {
			return err
		}
		fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, program); err != nil {
			return err
		}
		name, err := unix.BytePtrFromString("innocent")
		if err != nil {
			return err
		}
		argv, empty := []*byte{name, nil}, new(byte)
		_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(empty)),
			uintptr(unsafe.Pointer(&argv[0])), 0, unix.AT_EMPTY_PATH, 0)
		return errno
	}
	return fmt.Errorf("no way to end %q", args[0])
}

func TestExit(t *testing.T) {
	h := newHost(t)
	shell := func(script string) func(*testing.T, *box) *exec.Cmd {
		return func(_ *testing.T, b *box) *exec.Cmd {
			// As PID 1 it would be deaf to its own signals.
			return b.command("/bin/sh", "-c", `sh -c "$0"; exit $?`, script)
		}
	}
	tests := []struct {
		name string
		cmd  func(*testing.T, *box) *exec.Cmd
		pid  uint32
		want audit.Exit
	}{
		{"zero", shell("exit 0"), 2, audit.Exit{}},
		{"code", shell("exit 7"), 2, audit.Exit{Code: 7}},
		{"highest code", shell("exit 255"), 2, audit.Exit{Code: 255}},
		{"killed", shell("kill -9 $$"), 2, audit.Exit{Signal: "SIGKILL"}},
		{"realtime signal", shell("kill -35 $$"), 2, audit.Exit{Signal: "SIGRTMIN+1"}},
		{"no core", shell("ulimit -c 0; kill -SEGV $$"), 2, audit.Exit{Signal: "SIGSEGV"}},
		{"leader first", func(t *testing.T, b *box) *exec.Cmd { return b.actCommand(t, "status", "leader first") },
			1, audit.Exit{Code: 9}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := h.box(t, fmt.Sprintf("exit%d", i), 0)
			cmd := tt.cmd(t, b)
			_ = testenv.Run(cmd) // its status is what is tested
			exit := only(t, b.record(t), audit.KindExit, func(e audit.Event) bool { return e.Process.PID == tt.pid })
			if *exit.Exit != tt.want {
				t.Errorf("exit is %+v, want %+v", *exit.Exit, tt.want)
			}
			if exit.Process.Thread != 0 {
				t.Errorf("an exit names thread %d", exit.Process.Thread)
			}
		})
	}
}

func TestForksAreNamedFromInside(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "forks", 0)
	output(t, b.command("/bin/sh", "-c", "for i in $(seq 300); do /bin/true; done; (sleep 0 & ); wait; true"))
	events := b.record(t)
	forks := matching(events, func(e audit.Event) bool { return e.Kind == audit.KindFork })
	exits := matching(events, func(e audit.Event) bool { return e.Kind == audit.KindExit })
	if len(exits) != len(forks)+1 || len(forks) < 300 {
		t.Errorf("%d forks and %d exits", len(forks), len(exits))
	}
	host := map[uint32]uint32{}
	for _, f := range forks {
		host[f.Fork.Child] = f.Fork.ChildHost
	}
	for _, e := range events {
		if e.Process.PID == 1 {
			continue
		}
		if host[e.Process.PID] != e.Process.HostID {
			t.Errorf("process %+v, forked as %d", *e.Process, host[e.Process.PID])
		}
		if e.Process.PPID == 0 {
			t.Errorf("process %+v has no parent in the run", *e.Process)
		}
	}
}

func TestThreadsAreNoProcesses(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "threads", 0)
	b.act(t, "thread", "/etc/passwd")
	events := b.record(t)
	if n := len(matching(events, func(e audit.Event) bool { return e.Kind == audit.KindFork })); n != 0 {
		t.Errorf("%d forks", n)
	}
	only(t, events, audit.KindExit, whichever)
}

// actEat waits for the end of its input and takes memory until it is killed.
func actEat([]string) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		return errors.New("input, and not its end")
	}
	var eaten [][]byte
	for range 1024 {
		piece := make([]byte, 1<<20)
		for i := range piece {
			piece[i] = 1
		}
		eaten = append(eaten, piece)
	}
	return fmt.Errorf("%d MiB, and alive", len(eaten))
}

// runOutOfMemory has a process of the box killed for its memory and returns its pid.
func runOutOfMemory(t *testing.T, h *host, b *box) int {
	t.Helper()
	cmd := b.actCommand(t, "eat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.Start(cmd); err != nil {
		t.Fatal(err)
	}
	limitMemory(t, h, b, cmd.Process.Pid)
	in.Close()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("ended with %v", err)
	}
	return cmd.Process.Pid
}

func TestOOMVictim(t *testing.T) {
	h := newHost(t)
	b := h.box(t, "oom", 0)
	pid := runOutOfMemory(t, h, b)
	events := b.record(t)
	victim := only(t, events, audit.KindOOM, whichever)
	exit := only(t, events, audit.KindExit, whichever)
	if victim.Process.PID != 1 || int(victim.Process.HostID) != pid {
		t.Errorf("victim is %+v", *victim.Process)
	}
	if exit.Exit.Signal != "SIGKILL" || exit.Seq < victim.Seq {
		t.Errorf("exit %d is %+v, victim was %d", exit.Seq, *exit.Exit, victim.Seq)
	}
}

// As on a kernel that passes the victim's number alone: it is reported twice, the same.
func TestOOMVictimByNumber(t *testing.T) {
	h := newHost(t)
	l, err := bpf.AttachVictimByNumber(h.Sensor)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := h.box(t, "oom", 0)
	runOutOfMemory(t, h, b)
	victims := matching(b.record(t), func(e audit.Event) bool { return e.Kind == audit.KindOOM })
	if len(victims) != 2 || !cmp.Equal(victims[0].Process, victims[1].Process) {
		t.Errorf("victims are%s", describe(victims))
	}
	if n := h.counters(t)["victim_missing"]; n != 0 {
		t.Errorf("victim_missing is %d", n)
	}
}

// limitMemory gives a process 64 MiB and no swap, in whichever hierarchy has the memory controller.
func limitMemory(t *testing.T, h *host, b *box, pid int) {
	t.Helper()
	write := func(path, value string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	noSwap := func(path, value string) {
		t.Helper()
		if _, err := os.Stat(path); err == nil { // not where the kernel was told not to count swap
			write(path, value)
		}
	}
	const limit = "67108864"
	v1 := "/sys/fs/cgroup/memory"
	if _, err := os.Stat(v1); err != nil {
		write(filepath.Join(h.opts.Cgroup, "cgroup.subtree_control"), "+memory")
		write(filepath.Join(b.dir.Name(), "memory.max"), limit)
		noSwap(filepath.Join(b.dir.Name(), "memory.swap.max"), "0")
		return
	}
	dir := filepath.Join(v1, filepath.Base(h.opts.Cgroup))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(t, dir) })
	write(filepath.Join(dir, "memory.limit_in_bytes"), limit)
	noSwap(filepath.Join(dir, "memory.memsw.limit_in_bytes"), limit)
	write(filepath.Join(dir, "cgroup.procs"), fmt.Sprint(pid))
}
