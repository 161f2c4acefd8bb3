package daemon_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"proctor/supervisor/daemon"
	"proctor/testenv"
)

func TestContainerdGoesWithItsKilledSupervisor(t *testing.T) {
	rootTest(t)
	cmd, pid, said := supervise(t, testenv.DaemonOptions(t))
	if said != "" {
		t.Fatal(said)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pid)
}

func TestSuccessorTakesOver(t *testing.T) {
	testenv.Root(t)
	for _, hung := range []bool{false, true} {
		t.Run("hung="+strconv.FormatBool(hung), func(t *testing.T) {
			rootTest(t)
			opts := testenv.DaemonOptions(t)
			opts.StopTimeout = 300 * time.Millisecond
			cmd, pid, said := supervise(t, opts)
			if said != "" {
				t.Fatal(said)
			}
			if _, err := daemon.Start(t.Context(), opts); !errors.Is(err, daemon.ErrInUse) ||
				!strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
				t.Errorf("beside a live supervisor: %v", err)
			}
			// A client of the first supervisor's, to run a task there.
			first, err := daemon.External(t.Context(), filepath.Join(opts.State, "containerd.sock"))
			if err != nil {
				t.Fatal(err)
			}
			task := startTask(t, opts.RuncOptions(), connect(t, first), "heirloom")
			if hung {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			d := testenv.StartContainerd(t, opts)
			awaitEnd(t, pid)
			c := connect(t, d)
			mustRun(t, c, "heirloom", task.Pid())
			endTask(t, c, "heirloom")
		})
	}
}

// A successor that wants none of a namespace's tasks finds them gone; another namespace's go on.
func TestSuccessorEndsTasks(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	first, err := daemon.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	task := startTask(t, opts.RuncOptions(), connect(t, first), "heirloom")
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	opts.EndTasks = "another"
	second, err := daemon.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, connect(t, second), "heirloom", task.Pid())
	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	opts.EndTasks = namespace
	third := testenv.StartContainerd(t, opts)
	// The process and its cgroup are their owner's to end.
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(int(task.Pid())) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(int(task.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Errorf("the task's process: %v", err)
	}
	awaitEnd(t, int(task.Pid()))
	for line := range strings.Lines(string(groups)) {
		group := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + group)
		for _, dir := range append(dirs, "/sys/fs/cgroup"+group) {
			// A process that ended leaves its cgroup when it is collected.
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				err := os.Remove(dir)
				if err == nil || errors.Is(err, fs.ErrNotExist) {
					break
				}
				if time.Now().After(deadline) {
					t.Error(err)
					break
				}
			}
		}
	}
	ctx := withNamespace(t.Context())
	container, err := connect(t, third).LoadContainer(ctx, "heirloom")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := container.Task(ctx, nil); !errdefs.IsNotFound(err) {
		t.Errorf("its task: %v", err)
	}
	if err := container.Delete(ctx); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{third.BundleDir(), opts.RuncRoot()} {
		if left, _ := filepath.Glob(filepath.Join(dir, namespace, "*")); len(left) != 0 {
			t.Errorf("left on disk: %q", left)
		}
	}
}

func TestStaleSocketAndPIDFile(t *testing.T) {
	rootTest(t)
	opts := testenv.DaemonOptions(t)
	if err := os.MkdirAll(opts.State, 0o711); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(opts.State, "containerd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	// This process's number, but not the one who wrote the file.
	text := `{"pid":` + strconv.Itoa(os.Getpid()) + `,"start_ticks":1,"exe":"/x","config":"` + opts.State + `/config.toml"}`
	if err := os.WriteFile(filepath.Join(opts.State, "containerd.pid"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.StartContainerd(t, opts)
}

func TestExternal(t *testing.T) {
	rootTest(t)
	private := testenv.Containerd(t)
	d, err := daemon.External(t.Context(), "unix://"+private.Address())
	if err != nil {
		t.Fatal(err)
	}
	if !d.External() || d.Address() != private.Address() || !d.Status().Serving {
		t.Errorf("external: %v %s %+v", d.External(), d.Address(), d.Status())
	}
	c := connect(t, d)
	startTask(t, private.RuncOptions(), c, "guest")
	endTask(t, c, "guest")
	if root := d.StoreRoot(t.Context(), c, "overlayfs"); filepath.Base(root) != "io.containerd.snapshotter.v1.overlayfs" || !strings.HasPrefix(root, "/") {
		t.Errorf("it keeps images in %q", root)
	}
	if root := d.StoreRoot(t.Context(), c, "none"); root != "" {
		t.Errorf("a snapshotter that there is none of keeps images in %q", root)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-d.Done():
	default:
		t.Error("stopped and not done")
	}
	if !private.Status().Serving {
		t.Error("stopping the external one stopped containerd")
	}
}

func TestExternalThatIsNot(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "ext")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	mute := filepath.Join(dir, "mute")
	l, err := net.Listen("unix", mute)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	stale := filepath.Join(dir, "stale")
	s, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	s.(*net.UnixListener).SetUnlinkOnClose(false)
	s.Close()
	for address, want := range map[string]string{
		"":                             "not a unix socket path",
		"tcp://127.0.0.1:1":            "not a unix socket path",
		filepath.Join(dir, "none"):     "systemctl start containerd",
		stale:                          "no containerd listens",
		mute:                           "is it containerd?",
		"/" + strings.Repeat("x", 107): "shorter path",
	} {
		if _, err := daemon.External(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
}

// awaitEnd waits until a process that isn't our child has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(data), ") Z ") {
			return
		}
	}
	t.Fatalf("process %d is still there", pid)
}
