package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// busy is a program that has come up once it has made a file, and then goes on.
const busy = "echo before; : > /scratch/up; (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.05; done') & while :; do sleep 0.05; done"

// unified is a group's directory in the v2 hierarchy.
func unified(group string) string {
	if dir := "/sys/fs/cgroup/unified"; exists(dir) {
		return filepath.Join(dir, group)
	}
	return filepath.Join("/sys/fs/cgroup", group)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// populated says whether a run's cgroup has a process.
func (s *supervisor) populated(run string) error {
	data, err := os.ReadFile(filepath.Join(unified(s.group), run, "cgroup.events"))
	if err == nil && !bytes.Contains(data, []byte("populated 0")) {
		return fmt.Errorf("run %s still has processes", run)
	}
	return nil
}

func (s *supervisor) keptVerdict(t testing.TB, run string) *audit.Verdict {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.recordDir(run), "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := &audit.Verdict{}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *supervisor) status(t testing.TB) api.Status {
	t.Helper()
	var st api.Status
	r := s.proctor(t, "", "status", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &st); err != nil {
		t.Fatalf("status: %v: %s", err, r.stderr)
	}
	return st
}

// containerdPID is the private containerd's.
func (s *supervisor) containerdPID(t testing.TB) int {
	t.Helper()
	st := s.status(t)
	m := regexp.MustCompile(`^serving, pid (\d+),`).FindStringSubmatch(st.Containerd)
	if m == nil {
		t.Fatalf("containerd is %q", st.Containerd)
	}
	pid, _ := strconv.Atoi(m[1])
	return pid
}

// Two supervisors; one is killed. Its runs end at once, nothing is allowed meanwhile, the
// next one cleans up and seals, and neither the other supervisor nor strangers feel any of it.
func TestSupervisorKilled(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	a, b := twoSupervisors(t)

	// Strangers: a container and a snapshot of another namespace, a cgroup with a process, a
	// network namespace.
	foreign := foreignContainer(t, a)
	stranger := unified(testenv.Cgroup(t))
	if err := os.Mkdir(stranger, 0o755); err != nil {
		t.Fatal(err)
	}
	sleeper := sleepIn(t, stranger)
	netns := foreignNetns(t)

	victim, bystander := a.background(t, busy), b.background(t, busy)
	inside := members(t, a, victim.run)
	if len(inside) < 3 {
		t.Fatalf("the run has the processes %v", inside)
	}
	pid := a.containerdPID(t)
	a.kill()
	eventually(t, 3*time.Second, func() error { return a.populated(victim.run) })
	for _, p := range inside {
		// A dead process is a zombie until its parent looks, and gone between two looks of ours.
		eventually(t, time.Second, func() error {
			if err := unix.Kill(p, 0); !errors.Is(err, unix.ESRCH) && !isZombie(p) {
				return fmt.Errorf("process %d of the run is there after its supervisor's end: %v", p, err)
			}
			return nil
		})
	}
	select {
	case <-victim.waited:
	case <-time.After(10 * time.Second):
		t.Error("the client waits for a supervisor that is gone")
	}
	if v := parseVerdict(t, victim.stdout.String()); v.Status != audit.StatusError || v.ExitCode != 125 || !strings.Contains(v.Reason, "the supervisor went away during the run") {
		t.Errorf("the client was told %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
	}
	if r := a.proctor(t, "", "status"); r.code != 125 || !strings.Contains(r.stderr, "none is running at") {
		t.Errorf("status: %d: %s", r.code, r.stderr)
	}
	stray := filepath.Join(unified(a.group), "stray")
	if err := os.Mkdir(stray, 0o755); err != nil {
		t.Fatal(err)
	}
	if out := inCgroup(t, stray, "127.0.0.1", "SOCK_STREAM"); !strings.Contains(out, "EPERM") {
		t.Errorf("without a supervisor, a process below its cgroup: %s", out)
	}

	if err := a.start(); err != nil {
		t.Fatal(err)
	}
	if err := a.empty(); err != nil {
		t.Error(err)
	}
	if exists(stray) {
		t.Error("a cgroup below the parent was not swept")
	}
	if now := a.containerdPID(t); now == pid {
		t.Error("the containerd of the supervisor that was killed goes on")
	}
	v := a.keptVerdict(t, victim.run)
	if v.Status != audit.StatusInterrupted || v.ExitCode != 125 || v.Audit.Complete {
		t.Errorf("the interrupted run is sealed as %s, code %d, complete %v: %s", v.Status, v.ExitCode, v.Audit.Complete, v.Reason)
	}
	if r := a.proctor(t, "", "audit", "show", victim.run); r.code != 0 || !strings.Contains(r.stdout, "verdict  interrupted") {
		t.Errorf("audit show: %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if v := a.verdict(t, "sh", "echo again"); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "again\n" {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}

	if err := b.populated(bystander.run); err == nil {
		t.Error("the other supervisor's run has ended")
	}
	if r := b.proctor(t, "", "kill", bystander.run); r.code != 0 {
		t.Errorf("kill: %s", r.stderr)
	}
	if v := bystander.wait(t); v.Status != audit.StatusKilled {
		t.Errorf("the other supervisor's run: %s: %s", v.Status, v.Reason)
	}
	if r := b.proctor(t, "", "audit", "show", victim.run); r.code != 125 || !strings.Contains(r.stderr, "no such run") {
		t.Errorf("the other supervisor knows the run: %d: %s", r.code, r.stderr)
	}
	foreign(t)
	if err := unix.Kill(sleeper, 0); err != nil || isZombie(sleeper) {
		t.Errorf("a stranger's process: %v", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(netns, &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		t.Errorf("a stranger's network namespace: %x, %v", fs.Type, err)
	}
}

func members(t *testing.T, s *supervisor, run string) []int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(unified(s.group), run, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for f := range strings.FieldsSeq(string(data)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	return pids
}

func isZombie(pid int) bool {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return bytes.Contains(data, []byte(") Z "))
}

// foreignContainer makes a container in the same containerd that is not the supervisor's, and
// returns a check that it is still there.
func foreignContainer(t *testing.T, s *supervisor) func(t *testing.T) {
	t.Helper()
	with := func(f func(ctx context.Context, c *containerd.Client) error) error {
		c, err := containerd.New(s.dir + "/run/containerd/containerd.sock")
		if err != nil {
			return err
		}
		defer c.Close()
		return f(namespaces.WithNamespace(context.WithoutCancel(t.Context()), "stranger"), c)
	}
	err := with(func(ctx context.Context, c *containerd.Client) error {
		if _, err := c.SnapshotService("overlayfs").Prepare(ctx, "strange-snapshot", ""); err != nil {
			return err
		}
		_, err := c.NewContainer(ctx, "strange-container", containerd.WithSnapshotter("overlayfs"), containerd.WithSnapshot("strange-snapshot"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) {
		t.Helper()
		err := with(func(ctx context.Context, c *containerd.Client) error {
			if _, err := c.SnapshotService("overlayfs").Stat(ctx, "strange-snapshot"); err != nil {
				return err
			}
			_, err := c.LoadContainer(ctx, "strange-container")
			return err
		})
		if err != nil {
			t.Errorf("a stranger's container or snapshot: %v", err)
		}
	}
}

func sleepIn(t *testing.T, group string) int {
	t.Helper()
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/bin/sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func foreignNetns(t *testing.T) string {
	t.Helper()
	file := filepath.Join(testenv.Dir(t), "netns")
	if err := os.WriteFile(file, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), file, "", unix.MS_BIND, "")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	return file
}

// Containerd is killed, and in the end the supervisor is stopped, both with runs going on.
func TestContainerdKilledAndStop(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	config := filepath.Join(testenv.Dir(t), "proctor.yaml")
	if err := os.WriteFile(config, []byte("stop_timeout: 2s\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(t, "--config", config)
	t.Run("containerd", func(t *testing.T) { killContainerd(t, s) })
	t.Run("stop", func(t *testing.T) { stopWithRuns(t, s) })
}

func killContainerd(t *testing.T, s *supervisor) {
	run := s.background(t, ": > /scratch/up; sleep 2; echo done; exit 7")
	if err := unix.Kill(s.containerdPID(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	v := run.wait(t)
	if v.Status != audit.StatusExit || v.ExitCode != 7 || string(v.Stdout.Bytes()) != "done\n" {
		t.Errorf("the run that went on: %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
	}
	checkRecord(t, v, s.events(t, v.Run))
	eventually(t, 20*time.Second, func() error {
		if !strings.HasPrefix(s.status(t).Containerd, "serving") {
			return errors.New("containerd is not started again")
		}
		return nil
	})
	if v := s.verdict(t, "sh", "echo again"); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "again\n" {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}
	eventually(t, 20*time.Second, s.empty)
	if st := s.status(t); !strings.Contains(st.Containerd, "restarts 1") {
		t.Errorf("status says of containerd: %s", st.Containerd)
	}

	// In the midst of runs being made, too: each has a verdict, and the next is well.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r := s.proctor(t, "echo x", "run", "--json", "--lang", "sh", "-")
			if v := parseVerdict(t, r.stdout); v.Status != audit.StatusOK && (v.Status != audit.StatusError || v.Reason == "") {
				t.Errorf("a run while containerd was killed: %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	pid := s.containerdPID(t)
	_ = unix.Kill(pid, unix.SIGKILL)
	wg.Wait()
	eventually(t, 30*time.Second, func() error {
		if v := s.verdict(t, "sh", "echo again"); v.Status != audit.StatusOK {
			return fmt.Errorf("the next run: %s: %s", v.Status, v.Reason)
		}
		return nil
	})
	eventually(t, 30*time.Second, s.empty)
}

func stopWithRuns(t *testing.T, s *supervisor) {
	short, long := s.background(t, ": > /scratch/up; sleep 1; echo done"), s.background(t, busy)
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	if v := short.wait(t); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "done\n" {
		t.Errorf("a run that ends in time: %s: %s", v.Status, v.Reason)
	}
	if v := long.wait(t); v.Status != audit.StatusKilled || v.ExitCode != 137 || !strings.Contains(v.Reason, "the supervisor is stopping") || string(v.Stdout.Bytes()) != "before\n" {
		t.Errorf("a run that does not: %s, code %d: %s", v.Status, v.ExitCode, v.Reason)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	for _, r := range []*supervisorRun{short, long} {
		if v := s.keptVerdict(t, r.run); !v.Audit.Complete || v.Audit.Lost != 0 {
			t.Errorf("the record of run %s: %+v", r.run, v.Audit)
		}
	}
	if exists(s.socket) {
		t.Error("the socket is still there")
	}
	if err := s.empty(); err != nil {
		t.Error(err)
	}
}
