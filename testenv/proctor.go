package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ProctorOptions say how a supervisor of a test is started.
type ProctorOptions struct {
	Dir  string   // holds its state and run directories; default: a new Dir
	Args []string // further arguments of `proctor serve`
}

// Proctor is a running `proctor serve`.
type Proctor struct {
	StateDir string
	RunDir   string
	Socket   string

	binary string
	cmd    *exec.Cmd
	log    *syncBuffer
	ended  chan struct{} // closed when the process is reaped
}

// ImagesDir is where the built images are: PROCTOR_IMAGES, or build/images in the
// module's root.
func ImagesDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PROCTOR_IMAGES")
	if dir == "" {
		dir = filepath.Join(ModuleRoot(t), "build", "images")
	}
	if _, err := os.Stat(filepath.Join(dir, "images.lock")); err != nil {
		t.Fatalf("no images: %v: run `make images`, or set PROCTOR_IMAGES", err)
	}
	return dir
}

// serveTimeout bounds how long a supervisor may take until it answers: mostly the first
// import of its images.
const serveTimeout = 3 * time.Minute

// StartProctor starts a supervisor with the built binaries and images, waits until it
// answers, and stops it at the test's end.
func StartProctor(t testing.TB, o ProctorOptions) *Proctor {
	t.Helper()
	if o.Dir == "" {
		o.Dir = Dir(t)
	}
	p := &Proctor{
		StateDir: filepath.Join(o.Dir, "state"), RunDir: filepath.Join(o.Dir, "run"),
		binary: filepath.Join(BinDir(t), "proctor"), log: &syncBuffer{}, ended: make(chan struct{}),
	}
	p.Socket = filepath.Join(p.RunDir, "proctor.sock")
	args := append([]string{
		"serve", "--state-dir", p.StateDir, "--run-dir", p.RunDir, "--socket", p.Socket, "--images", ImagesDir(t),
	}, o.Args...)
	p.cmd = exec.Command(p.binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state tells
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Stop(t)
		if m := readyLine.FindStringSubmatch(p.Log()); m != nil {
			Own("/" + m[1]) // a leak of its cgroups is this test's
		}
		if t.Failed() {
			t.Logf("log of the supervisor:\n%s", p.log)
		}
	})
	deadline := time.After(serveTimeout)
	for asked := time.Now(); ; {
		// Asking takes a process, which costs a starting supervisor time: it says when it is up,
		// unless it was told to be quiet.
		if readyLine.MatchString(p.Log()) || time.Since(asked) > time.Second {
			if p.Command("status").Run() == nil {
				return p
			}
			asked = time.Now()
		}
		select {
		case <-p.ended:
			t.Fatalf("the supervisor ended:\n%s", p.log)
		case <-deadline:
			t.Fatalf("the supervisor did not answer within %s:\n%s", serveTimeout, p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Command is a client command of this supervisor.
func (p *Proctor) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.binary, args...)
	cmd.Env = append(os.Environ(), "PROCTOR_SOCKET="+p.Socket)
	return cmd
}

// PID is the supervisor's process.
func (p *Proctor) PID() int { return p.cmd.Process.Pid }

// Log is what the supervisor has logged so far.
func (p *Proctor) Log() string { return p.log.String() }

// Stop asks the supervisor to end and waits for it. It may be called again.
func (p *Proctor) Stop(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if !p.cmd.ProcessState.Success() {
			t.Errorf("the supervisor ended with %s:\n%s", p.cmd.ProcessState, p.log)
		}
	case <-time.After(90 * time.Second):
		t.Errorf("the supervisor did not stop:\n%s", p.log)
		p.Kill()
	}
}

// Kill ends the supervisor with SIGKILL and waits for it.
func (p *Proctor) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// ContainerdAddress is the socket of the private containerd.
func (p *Proctor) ContainerdAddress() string {
	return filepath.Join(p.RunDir, "containerd", "containerd.sock")
}

var readyLine = regexp.MustCompile(`msg=ready .*cgroup=(\S+)`)

// Cgroup is the parent of the runs' cgroups, by its path in each hierarchy.
func (p *Proctor) Cgroup(t testing.TB) string {
	t.Helper()
	m := readyLine.FindStringSubmatch(p.Log())
	if m == nil {
		t.Fatalf("the supervisor has not said which cgroup it uses:\n%s", p.Log())
	}
	return m[1]
}

// Namespace is containerd's that the supervisor uses: called like the parent cgroup.
func (p *Proctor) Namespace(t testing.TB) string { return p.Cgroup(t) }

// syncBuffer is a buffer that is written while it is read.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
