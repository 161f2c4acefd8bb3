package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
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
)

// lab makes boxes without a supervisor, so that one can be had unwatched.
type lab struct {
	runtime *container.Runtime
	cgroups cgroup.Host
	parent  string
	dir     string
	image   string
	n       int

	programs int // in the kernel, without a Sensor
}

// newLab imports one image, of those in dir.
func newLab(b *testing.B, dir, name string) *lab {
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
	lock, err := images.LoadLock(filepath.Join(dir, images.LockFile))
	if err != nil {
		b.Fatal(err)
	}
	img, err := lock.Resolve(name)
	if err != nil {
		b.Fatal(err)
	}
	ctx := namespaces.WithNamespace(b.Context(), "bench")
	if _, err := images.Import(ctx, client, lock.ArchivePath(img), img, images.ImportOptions{}); err != nil {
		b.Fatal(err)
	}
	l.image = img.Ref()
	l.runtime, err = container.New(container.Options{
		Client: client, Namespace: "bench", Address: d.Address(), ShimSockets: d.ShimSocketDir(), Cgroups: l.cgroups, Parent: l.parent, Dir: l.dir, Staging: filepath.Join(l.dir, "inputs"),
		Runc: d.RuncOptions(), Init: filepath.Join(testenv.BinDir(b), "proctor-init"),
		Snapshotter: "overlayfs", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	l.programs = testenv.Programs(b)
	return l
}

// A job is a program and what it gets.
type job struct {
	interpreter string
	name        string // of its file
	code        []byte
	input       *os.File // may be nil
}

// block runs a job n times, all of them watched or all not.
func (l *lab) block(b *testing.B, watched bool, j job, n int) []result {
	b.Helper()
	var sensor *bpf.Sensor
	if watched {
		var err error
		sensor, err = bpf.Open(bpf.Options{Cgroup: l.cgroups.Unified(l.parent), Dir: filepath.Join(l.dir, "kernel"), Permitted: container.Permitted()})
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := sensor.Remove(); err != nil {
				b.Error(err)
			}
			testenv.WaitPrograms(b, l.programs)
		}()
	}
	var results []result
	for range n {
		results = append(results, l.run(b, sensor, j))
	}
	return results
}

type result struct {
	took   time.Duration // from the program's start to its end
	stdout string
}

func times(results []result) (took []time.Duration) {
	for _, r := range results {
		took = append(took, r.took)
	}
	return took
}

// run makes one box and times its program. One that is watched is written down, too.
func (l *lab) run(b *testing.B, sensor *bpf.Sensor, j job) result {
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
			Timeout: time.Minute, Memory: 1 << 30, CPUs: 1, CPUTime: time.Hour, Processes: 256, ScratchBytes: 512 << 20,
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
		journal, err := audit.CreateJournal(filepath.Join(l.dir, id+".jsonl"))
		must(err)
		go func() {
			defer close(done)
			for reading.Err() == nil {
				events, _ := w.Read(reading)
				if err := journal.Append(events...); err != nil {
					b.Error(err)
				}
			}
			if _, err := journal.Close(); err != nil {
				b.Error(err)
			}
		}()
	}
	defer func() { stop(); <-done }()
	must(bx.Start(ctx))
	must(bx.AttachCode(j.name, j.code))
	if j.input != nil {
		_, err = bx.AttachInput(ctx, filepath.Base(j.input.Name()), j.input)
		must(err)
	}
	null, err := os.Open(os.DevNull)
	must(err)
	defer null.Close()
	r, w, err := os.Pipe()
	must(err)
	defer r.Close()
	said := make(chan []byte, 1)
	go func() {
		out, _ := io.ReadAll(r)
		said <- out
	}()

	began := time.Now()
	must(bx.Go(ctx, box.Program{
		Argv: []string{j.interpreter, "/code/" + j.name}, Dir: "/scratch",
		Env:   []string{"PATH=/usr/bin:/bin", "HOME=/scratch", "TMPDIR=/tmp", "LANG=C.UTF-8"},
		Stdio: [3]*os.File{null, w, w},
	}))
	exit, ok := <-bx.Exited()
	took := time.Since(began)
	must(w.Close())
	must(bx.Kill(ctx))
	out := <-said
	if !ok || exit.Code != 0 || exit.Err != nil {
		b.Fatalf("run ended with %+v: %s", exit, out)
	}
	return result{took, string(out)}
}
