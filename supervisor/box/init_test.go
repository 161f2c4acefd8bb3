package box

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/testenv"
)

func TestInitStartsProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var host unix.CPUSet
	if err := unix.SchedGetaffinity(0, &host); err != nil {
		t.Fatal(err)
	}
	var usable []int
	for i := range 1024 {
		if host.IsSet(i) {
			usable = append(usable, i)
		}
	}
	var one CPUSet
	one.Set(usable[len(usable)-1])

	open, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	cmd := exec.Command(self, initBinary(t, false))
	cmd.Env = []string{actVariable + "=spoiled init"}
	cmd.ExtraFiles = []*os.File{open, open}
	p := startInit(t, cmd)

	long := strings.Repeat("x", 100_000)
	argv := []string{self, "", "a b", "\xff\n", long}
	env := []string{actVariable + "=tell", "EMPTY=", "ODD=\xfe\n=", "NOEQUALS", "LONG=" + long}
	exit, out := p.run(t, Program{Argv: argv, Env: env, Dir: dir}, one)
	if exit != (Exit{}) {
		t.Fatalf("exit %+v, said %q", exit, out)
	}
	var got seen
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	// JSON has no other bytes than text.
	odd := strings.NewReplacer("\xff", "\ufffd", "\xfe", "\ufffd")
	for i := range argv {
		argv[i] = odd.Replace(argv[i])
	}
	for i := range env {
		env[i] = odd.Replace(env[i])
	}
	if diff := cmp.Diff(argv, got.Argv); diff != "" {
		t.Errorf("arguments: %s", diff)
	}
	if diff := cmp.Diff(env, got.Env); diff != "" {
		t.Errorf("environment: %s", diff)
	}
	if got.Dir != dir {
		t.Errorf("directory %q, want %q", got.Dir, dir)
	}
	if diff := cmp.Diff(usable[len(usable)-1:], got.CPUs); diff != "" {
		t.Errorf("processors: %s", diff)
	}
	if got.Session != 1 {
		t.Error("it leads no session")
	}
	for key, want := range map[string]string{
		"Umask": "0022", "SigBlk": "0000000000000000", "SigIgn": "0000000000000000", "ShdPnd": "0000000000000000",
	} {
		if got.Status[key] != want {
			t.Errorf("%s is %s, want %s", key, got.Status[key], want)
		}
	}
	for _, d := range got.Descriptors {
		if !slices.Contains([]string{"0 pipe", "1 pipe", "2 /dev/null"}, d) {
			t.Errorf("it holds descriptor %s", d)
		}
	}
	if len(got.Descriptors) != 3 {
		t.Errorf("descriptors %q", got.Descriptors)
	}
	if status := p.ended(t); status.ExitStatus() != 0 {
		t.Errorf("init ended with %v", status)
	}
}

func TestInitLeavesProcessors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var host unix.CPUSet
	if err := unix.SchedGetaffinity(0, &host); err != nil {
		t.Fatal(err)
	}
	var absent CPUSet
	absent.Set(1023)
	binary := initBinary(t, false)
	for name, set := range map[string]CPUSet{"none named": {}, "one that is not there": absent} {
		p := startInit(t, exec.Command(binary))
		_, out := p.run(t, Program{Argv: []string{self}, Env: []string{actVariable + "=tell"}, Dir: "/"}, set)
		var got seen
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		if len(got.CPUs) != host.Count() {
			t.Errorf("%s: the program has %v of %d", name, got.CPUs, host.Count())
		}
	}
}

func TestInitStreams(t *testing.T) {
	p := startInit(t, exec.Command(initBinary(t, false)))
	theirs, stdin, stdout := pipes(t)
	program := shell(`cat; exec 1>&- 2>&-; sleep 300`)
	program.Stdio = theirs
	if err := p.Go(program, CPUSet{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	if _, err := io.WriteString(stdin, "through"); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	// The program goes on, but has closed its streams: nobody else holds them.
	if out, err := io.ReadAll(stdout); err != nil || string(out) != "through" {
		t.Errorf("read %q, %v", out, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if status := p.ended(t); !status.Exited() || status.ExitStatus() != 125 {
		t.Errorf("without a supervisor init ended with %v", status)
	}
}

func TestInitExitStatus(t *testing.T) {
	binary := initBinary(t, false)
	for script, want := range map[string]Exit{
		"exit 0": {}, "exit 1": {Code: 1}, "exit 124": {Code: 124}, "exit 125": {Code: 125}, "exit 128": {Code: 128}, "exit 255": {Code: 255}, "exit 256": {},
		"kill -TERM $$": {Signal: 15}, "kill -KILL $$": {Signal: 9}, "kill -SEGV $$": {Signal: 11}, "kill -SYS $$": {Signal: 31}, "kill -34 $$": {Signal: 34}, "kill -64 $$": {Signal: 64},
		// Children that end before and after are not it.
		"(exit 3); (kill -9 $$x 2>/dev/null); sleep 0 & exit 4": {Code: 4},
		// A stop is no end.
		"(while kill -CONT $$ 2>/dev/null; do sleep 0.1; done) & kill -STOP $$; exit 5": {Code: 5},
	} {
		t.Run(script, func(t *testing.T) {
			p := startInit(t, exec.Command(binary))
			exit, _ := p.run(t, shell(script), CPUSet{})
			if exit != want {
				t.Errorf("got %+v, want %+v", exit, want)
			}
			code := want.Code
			if want.Signal != 0 {
				code = 128 + want.Signal
			}
			if status := p.ended(t); !status.Exited() || status.ExitStatus() != code {
				t.Errorf("init ended with %v, want %d", status, code)
			}
		})
	}
}

func TestInitCannotStart(t *testing.T) {
	binary := initBinary(t, false)
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		p    Program
		want StartError
	}{
		{"missing", Program{Argv: []string{"/nonexistent/python3"}, Dir: "/"}, StartError{Step: "exec", Errno: unix.ENOENT}},
		{"directory", Program{Argv: []string{dir}, Dir: "/"}, StartError{Step: "exec", Errno: unix.EACCES}},
		{"no program", Program{Argv: []string{text}, Dir: "/"}, StartError{Step: "exec", Errno: unix.ENOEXEC}},
		{"empty name", Program{Argv: []string{""}, Dir: "/"}, StartError{Step: "exec", Errno: unix.ENOENT}},
		{"not searched for", Program{Argv: []string{"sh"}, Dir: "/", Env: []string{"PATH=/bin"}}, StartError{Step: "exec", Errno: unix.ENOENT}},
		{"argument past the kernel's limit", Program{Argv: []string{"/bin/true", strings.Repeat("a", 128<<10)}, Dir: "/"}, StartError{Step: "exec", Errno: unix.E2BIG}},
		{"arguments as long as may be", Program{Argv: []string{"/bin/true", strings.Repeat("a", goMax-13)}, Dir: "/"}, StartError{Step: "exec", Errno: unix.E2BIG}},
		{"no directory", Program{Argv: []string{"/bin/true"}, Dir: "/nonexistent"}, StartError{Step: "enter the working directory", Errno: unix.ENOENT}},
		{"file for a directory", Program{Argv: []string{"/bin/true"}, Dir: text}, StartError{Step: "enter the working directory", Errno: unix.ENOTDIR}},
		{"empty directory", Program{Argv: []string{"/bin/true"}}, StartError{Step: "enter the working directory", Errno: unix.ENOENT}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := startInit(t, exec.Command(binary))
			exit, out := p.run(t, test.p, CPUSet{})
			var got *StartError
			if !errors.As(exit.Err, &got) {
				t.Fatalf("got %+v, said %q", exit, out)
			}
			test.want.Path = test.p.Argv[0]
			if *got != test.want {
				t.Errorf("got %v, want %v", got, &test.want)
			}
			if status := p.ended(t); status.ExitStatus() != 125 {
				t.Errorf("init ended with %v", status)
			}
		})
	}
}

// Nobody but root may look into init, though it has the code's user.
func TestInitIsUndumpable(t *testing.T) {
	binary := initBinary(t, false)
	cmd := exec.Command(binary)
	uid := os.Geteuid()
	if uid == 0 {
		uid = 65534
		shared := filepath.Join(testenv.Dir(t), "init")
		data, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(shared, data, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(shared)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	p := startInit(t, cmd)
	owner := func(pid int) int {
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &st); err != nil {
			t.Fatal(err)
		}
		return int(st.Uid)
	}
	if got := owner(p.cmd.Process.Pid); got != 0 {
		t.Errorf("its memory belongs to %d", got)
	}
	theirs, _, stdout := pipes(t)
	program := shell("echo up; sleep 300")
	program.Stdio = theirs
	if err := p.Go(program, CPUSet{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	pid := make(chan int, 1)
	go p.Wait(func(n int) { pid <- n })
	program1 := <-pid
	defer unix.Kill(program1, unix.SIGKILL)
	if got := owner(p.cmd.Process.Pid); got != 0 {
		t.Errorf("with a program its memory belongs to %d", got)
	}
	if got := owner(program1); got != uid {
		t.Errorf("the program's memory belongs to %d, want %d: it could not be debugged by its own", got, uid)
	}
}

func TestInitGoesWithoutSupervisor(t *testing.T) {
	binary := initBinary(t, false)
	p := startInit(t, exec.Command(binary))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if status := p.ended(t); !status.Exited() || status.ExitStatus() != 125 {
		t.Errorf("before go: %v", status)
	}
	for _, args := range [][]string{{}, {"/nonexistent"}, {strings.Repeat("a", 108)}, {"a", "b"}} {
		err := exec.Command(binary, args...).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 125 {
			t.Errorf("with arguments %q: %v", args, err)
		}
	}
}

// As PID 1, init takes its whole namespace with it, and leaves no zombie while it lives.
func TestInitAsPID1Root(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	binary := initBinary(t, false)
	start := func() (*initProcess, *os.File) {
		cmd := exec.Command(binary)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		p := startInit(t, cmd)
		theirs, _, stdout := pipes(t)
		// Orphans that end at once, and two that do not: one deaf to signals and in a session of its own.
		program := shell(`for i in 1 2 3 4 5; do (: & ); done
			(setsid sh -c 'trap "" TERM HUP INT; sleep 300' &)
			(sleep 300 &)
			echo up; read line; exit 9`)
		program.Stdio = theirs
		if err := p.Go(program, CPUSet{}); err != nil {
			t.Fatal(err)
		}
		for _, f := range theirs[1:] {
			f.Close()
		}
		if _, err := stdout.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		return p, stdout
	}

	t.Run("reaps", func(t *testing.T) {
		p, _ := start()
		for _, fd := range []string{"0", "1", "2"} {
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.cmd.Process.Pid, fd)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("init holds %s, %s, %v", fd, to, err)
			}
		}
		deadline := time.Now().Add(5 * time.Second)
		for {
			children, zombies := childrenOf(t, p.cmd.Process.Pid)
			// The program and the two orphans that go on.
			if children == 3 && zombies == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d children, %d of them dead", children, zombies)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for name, end := range map[string]func(*initProcess){
		"supervisor gone": func(p *initProcess) { p.Close() },
		"init killed":     func(p *initProcess) { p.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			p, stdout := start()
			end(p)
			// The orphans hold stdout: its end is theirs.
			if rest, err := io.ReadAll(stdout); err != nil || len(rest) > 0 {
				t.Errorf("something lives on: %q, %v", rest, err)
			}
			p.ended(t)
		})
	}
	t.Run("program ended", func(t *testing.T) {
		cmd := exec.Command(binary)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		p := startInit(t, cmd)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		done := make(chan Exit, 1)
		go func() {
			exit, _ := p.run(t, shell(`(setsid sleep 300 &); exit 9`), CPUSet{})
			done <- exit
		}()
		select {
		case exit := <-done:
			if exit != (Exit{Code: 9}) {
				t.Errorf("exit %+v", exit)
			}
		case <-ctx.Done():
			t.Fatal("an orphan that holds stdout holds up the end")
		}
	})
}

func childrenOf(t *testing.T, pid int) (children, zombies int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range strings.Fields(string(data)) {
		if _, err := strconv.Atoi(child); err != nil {
			t.Fatal(err)
		}
		children++
		if stat, err := os.ReadFile("/proc/" + child + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			zombies++
		}
	}
	return children, zombies
}
