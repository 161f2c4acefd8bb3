package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

func TestClientGone(t *testing.T) {
	s := root(t)
	for _, test := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 130}, {syscall.SIGKILL, -1}} {
		t.Run(test.signal.String(), func(t *testing.T) {
			run := s.background(t, busy)
			_ = run.cmd.Process.Signal(test.signal)
			<-run.waited
			if code := run.cmd.ProcessState.ExitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			eventually(t, 5*time.Second, func() error { return s.populated(run.run) })
			eventually(t, 10*time.Second, func() error {
				if !exists(filepath.Join(s.recordDir(run.run), "verdict.json")) {
					return errors.New("no verdict")
				}
				return nil
			})
			if v := s.keptVerdict(t, run.run); v.Status != audit.StatusKilled || v.ExitCode != 137 || !strings.Contains(v.Reason, "caller went away") {
				t.Errorf("%s, code %d: %s", v.Status, v.ExitCode, v.Reason)
			}
		})
	}
	t.Run("while it reads stdin", func(t *testing.T) {
		cmd := s.command(t.Context(), "run", "--lang", "sh", "-")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		_ = cmd.Process.Signal(syscall.SIGINT)
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			t.Fatal("Ctrl-C does not end a client that reads stdin")
		}
		if code := cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("exit code %d", code)
		}
	})
}

// Whenever a caller goes, its run has one end, and nothing of it stays.
func TestCancelAtRandom(t *testing.T) {
	s := root(t)
	before := s.records(t)
	descriptors := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	fds := descriptors()
	const tries, atOnce = 50, 5
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for range tries / atOnce {
				cmd := s.command(t.Context(), "run", "--json", "--lang", "sh", "-")
				cmd.Stdin = strings.NewReader("sleep 0.1; echo done; sleep 30")
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
				signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}
				_ = cmd.Process.Signal(signals[rand.IntN(len(signals))])
				if rand.IntN(2) == 0 {
					_ = cmd.Process.Signal(syscall.SIGINT)
				}
				// A caller that was told to ignore signals, as in the background of a shell,
				// does until it has come to handle them.
				insist := time.AfterFunc(2*time.Second, func() { _ = cmd.Process.Kill() })
				_ = cmd.Wait()
				insist.Stop()
			}
		})
	}
	wg.Wait()
	eventually(t, 60*time.Second, s.empty)
	var states []string
	for _, id := range s.records(t) {
		if slices.Contains(before, id) {
			continue
		}
		v := s.keptVerdict(t, id)
		states = append(states, string(v.Status))
		if v.Status != audit.StatusKilled || v.ExitCode != 137 {
			t.Errorf("run %s: %s, code %d: %s", id, v.Status, v.ExitCode, v.Reason)
		}
		ends := 0
		for _, e := range s.events(t, id) {
			if e.Kind == audit.KindEnd {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("run %s ends %d times", id, ends)
		}
	}
	if len(states) == 0 {
		t.Error("no run was admitted at all")
	}
	if active := s.status(t).Active; len(active) != 0 {
		t.Errorf("active: %q", active)
	}
	eventually(t, 10*time.Second, func() error {
		if now := descriptors(); now > fds+4 {
			return fmt.Errorf("the supervisor has %d descriptors, it had %d", now, fds)
		}
		return nil
	})
	if v := s.verdict(t, "sh", "echo fine"); v.Status != audit.StatusOK {
		t.Errorf("the next run: %s: %s", v.Status, v.Reason)
	}
}

func TestExternalContainerd(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	d := testenv.Containerd(t)
	s := newSupervisor(t, "--containerd", d.Address())
	if st := s.status(t); st.Containerd != "external" {
		t.Errorf("status says of containerd: %s", st.Containerd)
	}
	if v := s.verdict(t, "sh", "echo hi"); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "hi\n" {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	eventually(t, 20*time.Second, s.empty)

	victim := s.background(t, busy)
	s.kill()
	eventually(t, 3*time.Second, func() error { return s.populated(victim.run) })
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	if v := s.keptVerdict(t, victim.run); v.Status != audit.StatusInterrupted {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	client, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	list, err := client.NamespaceService().List(t.Context())
	if err != nil {
		t.Fatalf("the operator's containerd: %v", err)
	}
	for _, name := range list {
		ctx := namespaces.WithNamespace(t.Context(), name)
		containers, err := client.Containers(ctx)
		if err != nil || len(containers) > 0 {
			t.Errorf("containers left in namespace %s: %d, %v", name, len(containers), err)
		}
		leases, err := client.LeasesService().List(ctx)
		if err != nil || len(leases) > 0 {
			t.Errorf("leases left in namespace %s: %v, %v", name, leases, err)
		}
	}
}

// A supervisor that is stopped while it starts takes down what it had put up.
func TestInterruptedStart(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	for _, after := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		dir := testenv.Dir(t)
		s := describe(t, dir, pickImages(t, dir, "python-data")) // which takes longer than that
		args := []string{"serve", "--state-dir", dir + "/state", "--run-dir", dir + "/run", "--images", s.images, "--cgroup", testenv.Cgroup(t)}
		cmd := s.command(t.Context(), args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		// In the first milliseconds the signal finds a program that does not handle it yet.
		if code != 130 && code != -1 || code == 130 && !strings.Contains(stderr.String(), "proctor: interrupted before it was ready: ") {
			t.Errorf("after %s: exit code %d, stderr %s", after, code, &stderr)
		}
		for _, m := range mountsBelow(dir) {
			t.Errorf("after %s: left behind: mount %s", after, m)
		}
		if left := processesWith(dir); len(left) > 0 {
			t.Errorf("after %s: left behind: processes %v", after, left)
		}
	}
}

// What a supervisor does not start with. Nothing may be left of the try.
func TestServeRefusals(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	group := testenv.Cgroup(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("file", "x")
	images := pickImages(t, dir, "shell")
	before := tree(dir)
	long := filepath.Join(dir, strings.Repeat("l", 120))
	for _, test := range []struct {
		name string
		args []string
		code int
		want string // of the last line
	}{
		{"an argument", []string{"x"}, 2, "proctor serve takes no arguments, got \"x\": see `proctor serve --help`"},
		{"a log level", []string{"--log-level", "loud"}, 2, `--log-level "loud": it is debug, info, warn or error`},
		{"a log format", []string{"--log-format", "xml"}, 2, `--log-format "xml": it is text or json`},
		{"no such configuration", []string{"--config", dir + "/none"}, 125, dir + "/none: no such file"},
		{"an unknown key", []string{"--config", write("bad.yaml", "statedir: /x\n")}, 125, "statedir"},
		{"a bad size", []string{"--config", write("size.yaml", "limits: {default: {memory: -1}}\n")}, 125, "write a positive size such as 512M or 2G"},
		{"a default above the ceiling", []string{"--config", write("ceiling.yaml", "limits: {default: {memory: 2G}, ceiling: {memory: 1G}}\n")}, 125, "default limits: memory 2 GiB: the ceiling is 1 GiB"},
		{"a resolver's name", []string{"--config", write("resolver.yaml", "network: {resolvers: [dns.example]}\n")}, 125, `configuration: network: resolver "dns.example": write ADDRESS`},
		{"no authorities", []string{"--config", write("noca.yaml", "network: {ca_file: /none.pem}\n")}, 125, "configuration: network: ca_file /none.pem: no such file"},
		{"authorities that are none", []string{"--config", write("ca.yaml", "network: {ca_file: "+file+"}\n")}, 125, "no certificate is in it: give a file in PEM"},
		{"no default profile", []string{"--config", write("profile.yaml", "profiles: "+dir+"\ndefault_profile: none\n")}, 125, `configuration: default_profile: no profile "none" in ` + dir},
		{"a cgroup that is not below the root", []string{"--cgroup", "../x"}, 125, `cgroup "../x": write a relative path of plain names, such as proctor`},
		{"no images", []string{"--images", dir + "/none"}, 125, "none"},
		{"no binaries", []string{"--lib-dir", dir}, 125, "containerd"},
		{"no external containerd", []string{"--containerd", dir + "/none"}, 125, "no containerd at " + dir + "/none"},
		{"a socket path that is too long", []string{"--socket", long}, 125, "at most 107 bytes"},
		{"a file in the socket's place", []string{"--socket", file}, 125, "socket " + file + ": something else is there: remove it, or choose another with --socket"},
		{"a socket that is served", []string{"--socket", s.socket}, 125, "socket " + s.socket + ": another supervisor serves it: stop that one, or choose another with --socket"},
		{"a state directory in use", []string{"--state-dir", s.dir + "/state"}, 125, s.dir},
		{"a run directory in use", []string{"--run-dir", s.dir + "/run"}, 125, s.dir},
		{"a file as state directory", []string{"--state-dir", file}, 125, file},
	} {
		t.Run(test.name, func(t *testing.T) {
			state, run := testenv.Dir(t), testenv.Dir(t)
			args := []string{"serve", "--state-dir", state, "--run-dir", run, "--cgroup", group, "--images", images, "--socket", run + "/s"}
			cmd := s.command(t.Context(), append(args, test.args...)...)
			r := finish(t, cmd, "")
			lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
			last := lines[len(lines)-1]
			if r.code != test.code || !strings.HasPrefix(last, "proctor: ") || !strings.Contains(last, test.want) {
				t.Errorf("exit code %d, want %d; stderr ends %q, want %q", r.code, test.code, last, test.want)
			}
			for _, l := range lines[:len(lines)-1] {
				if !strings.HasPrefix(l, "time=") && !strings.HasPrefix(l, "image: ") {
					t.Errorf("a line that is neither log nor progress: %q", l)
				}
			}
		})
	}
	after := slices.DeleteFunc(tree(dir), func(p string) bool { return strings.HasSuffix(p, ".yaml") })
	if before = slices.DeleteFunc(before, func(p string) bool { return strings.HasSuffix(p, ".yaml") }); !slices.Equal(before, after) {
		t.Errorf("before: %q\nafter: %q", before, after)
	}
	if v := s.verdict(t, "sh", "echo fine"); v.Status != audit.StatusOK {
		t.Errorf("a run of the supervisor that was there: %s: %s", v.Status, v.Reason)
	}
}
