package main_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

// A supervisor is `proctor serve` with directories, a socket and a cgroup of its own.
type supervisor struct {
	bin    string // directory of the binaries
	images string
	dir    string
	socket string
	group  string
	flags  []string // more, for serve
	env    []string // of the supervisor, besides the usual
	// startWith starts cmd where the test does it its own way; it is called on a locked thread.
	startWith func(*supervisor) error
	netns     string // file of the network namespace that it starts in; empty: the test's own

	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
}

// shared is the supervisor of all tests that do it no harm. Images are imported once.
var shared struct {
	sync.Once
	*supervisor
	err error
}

// startTimeout allows for the import of images on a busy machine.
const startTimeout = 3 * time.Minute

// root begins every test that needs the shared supervisor. What the test leaves behind,
// on the host or with the supervisor, fails it.
func root(t *testing.T) *supervisor {
	t.Helper()
	testenv.Root(t)
	shared.Do(func() {
		dir := mkdir(t)
		shared.supervisor = describe(t, dir, pickImages(t, dir, "python-data", "shell"))
		if shared.err = shared.supervisor.start(); shared.err == nil {
			// The first run makes directories that stay as long as the supervisor does.
			shared.supervisor.verdict(t, "sh", "true")
			eventually(t, 20*time.Second, shared.supervisor.empty)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	testenv.LeakCheck(t)
	s := shared.supervisor
	s.checkEmpty(t)
	s.showLog(t)
	return s
}

// showLog adds what the supervisor logs from now on to a test that fails.
func (s *supervisor) showLog(t *testing.T) {
	from := 0
	if info, err := os.Stat(s.logFile()); err == nil {
		from = int(info.Size())
	}
	t.Cleanup(func() {
		if data, _ := os.ReadFile(s.logFile()); t.Failed() && len(data) > from {
			t.Logf("the supervisor's log ends:\n%s", data[max(from, len(data)-4000):])
		}
	})
}

// checkEmpty fails the test if the supervisor holds anything of a run at the test's end.
func (s *supervisor) checkEmpty(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { eventually(t, 20*time.Second, s.empty) })
}

// empty says what is there of runs, if anything is.
func (s *supervisor) empty() error {
	if left := s.holds(); len(left) > 0 {
		return fmt.Errorf("left behind by the supervisor: %q", left)
	}
	return nil
}

// holds lists what exists of runs: workspaces, network namespaces, cgroups, containerd's
// tasks, the sockets of their shims, and the files of the run directory that begin with a run's id.
func (s *supervisor) holds() []string {
	var left []string
	for _, pattern := range []string{
		s.dir + "/run/boxes/*", s.dir + "/run/netns/*", s.dir + "/run/containerd/fifo/*", s.dir + "/run/containerd/s/*",
		s.dir + "/run/containerd/io.containerd.runtime.v2.task/*/*", s.dir + "/run/containerd/runc/*/*",
		"/sys/fs/cgroup/" + s.group + "/*-*", "/sys/fs/cgroup/*/" + s.group + "/*-*",
	} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	return left
}

// mkdir makes a short directory that carries the mark by which testenv knows this process's.
func mkdir(t testing.TB) string {
	t.Helper()
	b := make([]byte, 3)
	_, _ = rand.Read(b)
	dir := filepath.Join("/tmp", fmt.Sprintf("pt%d-%s", os.Getpid(), hex.EncodeToString(b)))
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pickImages makes a directory in dir with some of the built images, whatever else was
// built. The one named shell alone takes a second to import.
func pickImages(t testing.TB, dir string, names ...string) string {
	t.Helper()
	from, to := testenv.ImagesDir(t), filepath.Join(dir, "images")
	lock, err := os.ReadFile(filepath.Join(from, "images.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	keep := true
	for line := range strings.Lines(string(lock)) {
		if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ") {
			keep = slices.Contains(names, strings.TrimSuffix(strings.TrimSpace(line), ":"))
		}
		if !keep {
			continue
		}
		kept.WriteString(line)
		if name, ok := strings.CutPrefix(line, "    archive: "); ok {
			name = strings.TrimSpace(name)
			// A link of its own outlives a rebuild; across file systems it must do without.
			old, at := filepath.Join(from, name), filepath.Join(to, name)
			if os.Link(old, at) != nil {
				if err := os.Symlink(old, at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.WriteFile(filepath.Join(to, "images.lock"), []byte(kept.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

func describe(t testing.TB, dir, images string) *supervisor {
	t.Helper()
	bin := testenv.BinDir(t)
	for _, name := range []string{"proctor", "proctor-init"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Fatalf("%v: run `make build`, or set PROCTOR_BIN", err)
		}
	}
	return &supervisor{
		bin: bin, images: images, dir: dir, socket: dir + "/run/proctor.sock",
		group: "proctor-test-" + strings.TrimPrefix(filepath.Base(dir), "pt"),
	}
}

// newSupervisor starts a supervisor for one test, with the small image, and stops it at the
// test's end. The test has called testenv.LeakCheck.
func newSupervisor(t *testing.T, flags ...string) *supervisor {
	t.Helper()
	s := prepareSupervisor(t, flags...)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// twoSupervisors starts two at the same time.
func twoSupervisors(t *testing.T) (a, b *supervisor) {
	t.Helper()
	a, b = prepareSupervisor(t), prepareSupervisor(t)
	started := make(chan error, 1)
	go func() { started <- a.start() }()
	if err := errors.Join(b.start(), <-started); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func prepareSupervisor(t *testing.T, flags ...string) *supervisor {
	t.Helper()
	dir := testenv.Dir(t)
	s := describe(t, dir, pickImages(t, dir, "shell"))
	s.flags = flags
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		s.unmountAll(t)
	})
	s.showLog(t)
	return s
}

// unmountAll is for when the supervisor was left killed by a test that failed.
func (s *supervisor) unmountAll(t *testing.T) {
	for _, m := range mountsBelow(s.dir) {
		t.Errorf("left behind: mount %s", m)
		_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

func (s *supervisor) logFile() string { return filepath.Join(s.dir, "log") }

// start returns when the socket answers.
func (s *supervisor) start() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{
		"serve", "--state-dir", s.dir + "/state", "--run-dir", s.dir + "/run",
		"--images", s.images, "--cgroup", s.group,
	}, s.flags...)
	s.cmd = exec.Command(filepath.Join(s.bin, "proctor"), args...)
	s.cmd.Env = append(cleanEnv(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// Should this process die, so does the supervisor, which then takes everything down. The
	// kernel looks at the thread that started it: that one waits for it.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	s.exited = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := s.enter()
		if s.netns == "" {
			defer runtime.UnlockOSThread()
		}
		switch {
		case err != nil:
		case s.startWith != nil:
			err = s.startWith(s)
		default:
			err = s.cmd.Start()
		}
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
			close(s.exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	deadline := time.After(startTimeout)
	for {
		if c, err := net.Dial("unix", s.socket); err == nil {
			c.Close()
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("proctor serve: %v\n%s", s.cmd.ProcessState, s.logTail())
		case <-deadline:
			_ = s.stop()
			return fmt.Errorf("proctor serve is not ready after %s\n%s", startTimeout, s.logTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// enter has the thread enter the network namespace that is this supervisor's outside.
func (s *supervisor) enter() error {
	if s.netns == "" {
		return nil
	}
	ns, err := os.Open(s.netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}

// kill ends the supervisor alone, as a crash would.
func (s *supervisor) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// stop asks it to end and waits. It may be called again, and when it does not run.
func (s *supervisor) stop() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	select {
	case <-s.exited:
		return nil
	default:
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(90 * time.Second):
		s.kill()
		return fmt.Errorf("proctor serve did not end within 90 s of SIGTERM\n%s", s.logTail())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("proctor serve ended with %v\n%s", s.cmd.ProcessState, s.logTail())
	}
	return nil
}

// end stops the shared supervisor, and finds what it should have taken down.
func (s *supervisor) end() error {
	errs := []error{s.stop()}
	for _, m := range mountsBelow(s.dir) {
		errs = append(errs, fmt.Errorf("left behind: mount %s", m))
		_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/" + s.group, "/sys/fs/cgroup/*/" + s.group} {
		found, _ := filepath.Glob(pattern)
		for _, dir := range found {
			errs = append(errs, fmt.Errorf("left behind: cgroup %s", dir))
		}
	}
	for _, p := range processesWith(s.dir) {
		errs = append(errs, fmt.Errorf("left behind: process %s", p))
	}
	if _, err := os.Lstat(s.socket); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("left behind: socket %s", s.socket))
	}
	if len(mountsBelow(s.dir)) == 0 {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// mountsBelow lists the mount points below dir, innermost first.
func mountsBelow(dir string) []string {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			points = append([]string{f[4]}, points...)
		}
	}
	return points
}

// processesWith lists the processes whose command line holds text, by pid.
func processesWith(text string) map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f)
		if bytes.Contains(line, []byte(text)) {
			found[strings.Split(f, "/")[2]] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

func (s *supervisor) logTail() string {
	data, _ := os.ReadFile(s.logFile())
	return string(data[max(0, len(data)-4000):])
}
