package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"proctor/audit"
	"proctor/bpf"
	"proctor/images"
	"proctor/netpolicy"
	"proctor/supervisor/box"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/container"
	"proctor/testenv"
	"proctor/testenv/oracle/strace"
)

// lab makes boxes without a supervisor, so that there is a moment between the start of a
// box and that of its program, for a second observer to come in.
type lab struct {
	runtime *container.Runtime
	sensor  *bpf.Sensor
	cgroups cgroup.Host
	parent  string
	dir     string
	traces  string // where traces are written
	image   images.Image
	n       int
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	testenv.Root(t)
	dir := os.Getenv("PROCTOR_ORACLE")
	if dir == "" {
		t.Skip("oracle: set PROCTOR_ORACLE to where the image \"oracle\" is (make test-oracle does)")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: install the package strace", err)
	}
	lock, err := images.LoadLock(filepath.Join(dir, images.LockFile))
	if err != nil {
		t.Fatalf("PROCTOR_ORACLE=%s: %v: run `make test-oracle`", dir, err)
	}
	testenv.LeakCheck(t)
	l := &lab{dir: testenv.Dir(t), parent: testenv.Cgroup(t)}
	// Whoever looks into a difference wants the traces to stay.
	l.traces = cmp.Or(os.Getenv("PROCTOR_ORACLE_TRACES"), l.dir)
	l.image, err = lock.Resolve("oracle")
	must(t, err)
	d := testenv.Containerd(t)
	client, err := d.Client()
	must(t, err)
	t.Cleanup(func() { client.Close() })
	l.cgroups, err = cgroup.Detect()
	must(t, err)
	must(t, l.cgroups.MakeParent(l.parent))
	t.Cleanup(func() { l.cgroups.RemoveIfEmpty(l.parent) })
	ctx := namespaces.WithNamespace(t.Context(), l.parent)
	_, err = images.Import(ctx, client, lock.ArchivePath(l.image), l.image, images.ImportOptions{})
	must(t, err)
	l.runtime, err = container.New(container.Options{
		Client: client, Namespace: l.parent, Address: d.Address(), ShimSockets: d.ShimSocketDir(), Cgroups: l.cgroups, Parent: l.parent, Dir: l.dir, Staging: filepath.Join(l.dir, "inputs"),
		Runc: d.RuncOptions(), Init: filepath.Join(testenv.BinDir(t), "proctor-init"),
		Snapshotter: "overlayfs", Logger: testenv.Logger(t),
	})
	must(t, err)
	l.sensor, err = bpf.Open(bpf.Options{Cgroup: l.cgroups.Unified(l.parent), Dir: filepath.Join(l.dir, "kernel"), Permitted: container.Permitted(), Logger: testenv.Logger(t)})
	must(t, err)
	t.Cleanup(func() {
		if err := l.sensor.Remove(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A sight is one run, as both saw it.
type sight struct {
	steps  []strace.Step // the tracer's
	events []audit.Event // the sensor's
	init   int           // the box's init, by its number on the host
	root   *root         // what the box had as its file system
	output string
	exit   box.Exit
}

// runTimeout is for one program, which a tracer slows down.
const runTimeout = 2 * time.Minute

// run makes one box and lets its program be seen twice.
func (l *lab) run(t *testing.T, p program) *sight {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	l.n++
	id := fmt.Sprintf("oracle-%d", l.n)
	ns, err := netpolicy.NewNamespace(filepath.Join(l.dir, "netns"), id)
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	bx, err := l.runtime.Create(ctx, box.Spec{
		ID: id, Image: l.image.Ref(), NetNS: ns.Path(), Resolver: netpolicy.Resolver,
		Limits: box.Limits{
			Timeout: runTimeout, Memory: 2 << 30, CPUs: float64(min(2, runtime.NumCPU())), CPUTime: runTimeout * 2, Processes: 512,
			ScratchBytes: 512 << 20, ScratchInodes: 65_536, OutputBytes: 1 << 20, OpenFiles: 4096, AuditEvents: 1_000_000,
		},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := bx.Destroy(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	watch, err := l.sensor.Watch(bpf.WatchOptions{Run: id, CgroupID: bx.CgroupID(), RingBytes: 64 << 20})
	must(t, err)
	t.Cleanup(func() { watch.Close() })
	must(t, bx.Start(ctx))
	code, err := os.ReadFile(filepath.Join("testdata", p.file))
	must(t, err)
	must(t, bx.AttachCode(p.file, code))

	s := &sight{init: l.init(t, id)}
	s.root = openRoot(t, s.init)
	tracer := attach(t, s.init, filepath.Join(l.traces, strings.ReplaceAll(t.Name(), "/", "-")))
	must(t, watch.Arm())
	s.output, s.exit = l.start(ctx, t, bx, p)
	s.steps = tracer.wait(t)

	s.events, err = watch.Drain()
	must(t, err)
	counts, err := watch.Counts()
	must(t, err)
	if counts.Lost != 0 || counts.Events != uint64(len(s.events)) {
		t.Fatalf("the record is not whole: %+v of %d events", counts, len(s.events))
	}
	return s
}

// init is the one process of a box that has just been started.
func (l *lab) init(t *testing.T, id string) int {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(l.cgroups.Unified(filepath.Join(l.parent, id)), "cgroup.procs"))
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(list)))
	if err != nil {
		t.Fatalf("the box has the processes %q, want init alone", list)
	}
	return pid
}

// start runs the program to its end and returns what it wrote and how it ended.
func (l *lab) start(ctx context.Context, t *testing.T, bx box.Box, p program) (string, box.Exit) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	null, null2, err := os.Pipe() // an empty stdin, as a run has
	must(t, err)
	null2.Close()
	argv := append([]string{}, l.image.Interpreters[p.language()]...)
	if len(argv) == 0 {
		t.Fatalf("the image has no interpreter for %s", p.file)
	}
	env := []string{"HOME=/scratch", "TMPDIR=/tmp"}
	for name, value := range l.image.Env {
		env = append(env, name+"="+value)
	}
	err = bx.Go(ctx, box.Program{
		Argv: append(argv, "/code/"+p.file), Dir: "/scratch", Env: env, Stdio: [3]*os.File{null, w, w},
	})
	null.Close()
	w.Close()
	must(t, err)

	output := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		output <- string(text)
	}()
	var exit box.Exit
	select {
	case e, ok := <-bx.Exited():
		if exit = e; !ok {
			exit.Err = errors.New("the box ended without a word")
		}
	case <-ctx.Done():
		exit.Err = ctx.Err()
	}
	l.empty(ctx, t, bx)
	return <-output, exit
}

// empty waits until init is gone, and all others with it. Killing it, as is usual, would race
// with the end of its own that both sides have to tell of.
func (l *lab) empty(ctx context.Context, t *testing.T, bx box.Box) {
	t.Helper()
	for range 500 {
		if populated, err := l.cgroups.Populated(l.parent); err != nil || !populated {
			must(t, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the box did not end with its program")
	must(t, bx.Kill(context.WithoutCancel(ctx)))
}
