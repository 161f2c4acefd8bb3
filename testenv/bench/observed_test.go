package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"proctor/bpf"
	"proctor/images"
	"proctor/netpolicy"
	"proctor/supervisor/box"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/container"
	"proctor/testenv"
)

// BenchmarkPandas times the demonstration's analysis, from the start of its program to its
// end, in a box that is watched and recorded against the same box without any program
// loaded. In blocks, turn and turn about, as attaching takes longer than a run.
func BenchmarkPandas(b *testing.B) {
	testenv.Root(b)
	l := newLab(b)
	code, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(b), "examples", "weather.py"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var watched, bare []time.Duration
		l.run(b, nil, code) // warms caches
		for range 4 {
			bare = append(bare, l.block(b, false, code)...)
			watched = append(watched, l.block(b, true, code)...)
			watched = append(watched, l.block(b, true, code)...)
			bare = append(bare, l.block(b, false, code)...)
		}
		report(b, "watched", watched, "bare", bare)
	}
}

// lab makes boxes without a supervisor, so that one can be had unwatched.
type lab struct {
	runtime *container.Runtime
	cgroups cgroup.Host
	parent  string
	dir     string
	image   string
	input   *os.File
	n       int
}

func newLab(b *testing.B) *lab {
	b.Helper()
	d := testenv.Containerd(b)
	client, err := d.Client()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	l := &lab{dir: testenv.Dir(b), parent: fmt.Sprintf("proctor-bench-%d", os.Getpid())}
	if l.cgroups, err = cgroup.Detect(); err != nil {
		b.Fatal(err)
	}
	if err := l.cgroups.MakeParent(l.parent); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.cgroups.Remove(l.parent); err != nil {
			b.Error(err)
		}
	})
	lock, err := images.LoadLock(filepath.Join(testenv.ImagesDir(b), images.LockFile))
	if err != nil {
		b.Fatal(err)
	}
	img, err := lock.Resolve("python-data")
	if err != nil {
		b.Fatal(err)
	}
	ctx := namespaces.WithNamespace(b.Context(), "bench")
	if _, err := images.Import(ctx, client, lock.ArchivePath(img), img, images.ImportOptions{}); err != nil {
		b.Fatal(err)
	}
	l.image = img.Ref()
	l.runtime, err = container.New(container.Options{
		Client: client, Namespace: "bench", Cgroups: l.cgroups, Parent: l.parent, Dir: l.dir,
		Runc: d.RuncOptions(), Init: filepath.Join(testenv.BinDir(b), "proctor-init"),
		Snapshotter: "overlayfs", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	if l.input, err = os.Open(filepath.Join(testenv.ModuleRoot(b), "examples", "data", "seattle-weather.csv")); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.input.Close() })
	return l
}

// blockRuns is the number of runs between two changes of what is attached.
const blockRuns = 5

func (l *lab) block(b *testing.B, watched bool, code []byte) []time.Duration {
	b.Helper()
	var sensor *bpf.Sensor
	if watched {
		var err error
		sensor, err = bpf.Open(bpf.Options{Cgroup: l.cgroups.Unified(l.parent), Dir: filepath.Join(l.dir, "kernel")})
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := sensor.Remove(); err != nil {
				b.Error(err)
			}
		}()
	}
	var took []time.Duration
	for range blockRuns {
		took = append(took, l.run(b, sensor, code))
	}
	return took
}

// run makes one box and times its program.
func (l *lab) run(b *testing.B, sensor *bpf.Sensor, code []byte) time.Duration {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	ctx := b.Context()
	l.n++
	id := fmt.Sprintf("bench-%d", l.n)
	ns, err := netpolicy.NewNamespace(filepath.Join(l.dir, "netns"), id)
	must(err)
	defer ns.Close()
	bx, err := l.runtime.Create(ctx, box.Spec{
		ID: id, Image: l.image, NetNS: ns.Path(), Resolver: netpolicy.Resolver,
		Limits: box.Limits{
			Timeout: time.Minute, Memory: 1 << 30, CPUs: 1, Processes: 256, ScratchBytes: 512 << 20,
			ScratchInodes: 65_536, OutputBytes: 1 << 20, OpenFiles: 4096, AuditEvents: 250_000,
		},
	})
	must(err)
	defer func() {
		if err := bx.Destroy(context.WithoutCancel(ctx)); err != nil {
			b.Error(err)
		}
	}()
	reading, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	if sensor == nil {
		close(done)
	} else {
		w, err := sensor.Watch(bpf.WatchOptions{Run: id, CgroupID: bx.CgroupID(), RingBytes: 4 << 20})
		must(err)
		defer w.Close()
		must(w.Arm())
		go func() {
			defer close(done)
			for reading.Err() == nil {
				w.Read(reading)
			}
		}()
	}
	defer func() { stop(); <-done }()
	must(bx.Start(ctx))
	must(bx.AttachCode("weather.py", code))
	_, err = bx.AttachInput(ctx, "seattle-weather.csv", l.input)
	must(err)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(err)
	defer null.Close()
	r, w, err := os.Pipe()
	must(err)
	defer r.Close()
	defer w.Close()

	began := time.Now()
	must(bx.Go(ctx, box.Program{
		Argv: []string{"/usr/bin/python3", "/code/weather.py"}, Dir: "/scratch",
		Env:   []string{"PATH=/usr/bin:/bin", "HOME=/scratch", "LANG=C.UTF-8"},
		Stdio: [3]*os.File{r, w, w},
	}))
	exit, ok := <-bx.Exited()
	took := time.Since(began)
	if !ok || exit.Code != 0 || exit.Err != nil {
		b.Fatalf("run ended with %+v", exit)
	}
	return took
}
