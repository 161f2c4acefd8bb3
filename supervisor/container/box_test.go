package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"proctor/images"
	"proctor/netpolicy"
	"proctor/supervisor/box"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/daemon"
	"proctor/testenv"
)

// A host is a containerd with the shell image and a runtime on it.
type host struct {
	*Runtime
	daemon *daemon.Daemon
	image  images.Image
	dir    string
}

func newHost(t *testing.T) *host {
	t.Helper()
	testenv.Root(t)
	testenv.LeakCheck(t)
	h := &host{daemon: testenv.Containerd(t), dir: testenv.Dir(t)}
	client, err := h.daemon.Client()
	must(t, err)
	t.Cleanup(func() { client.Close() })
	lock, err := images.LoadLock(filepath.Join(testenv.ImagesDir(t), images.LockFile))
	must(t, err)
	h.image, err = lock.Resolve("shell")
	must(t, err)
	cgroups, err := cgroup.Detect()
	must(t, err)
	parent := testenv.Cgroup(t)
	must(t, cgroups.MakeParent(parent))
	t.Cleanup(func() { cgroups.RemoveIfEmpty(parent) })
	h.Runtime, err = New(Options{
		Client: client, Namespace: parent, Address: h.daemon.Address(), ShimSockets: h.daemon.ShimSocketDir(), Bundles: h.daemon.BundleDir(), Cgroups: cgroups, Parent: parent, Dir: h.dir, Staging: filepath.Join(h.dir, "inputs"), Runc: h.daemon.RuncOptions(),
		Init: filepath.Join(testenv.BinDir(t), "proctor-init"), Snapshotter: "overlayfs", Logger: testenv.Logger(t),
	})
	must(t, err)
	_, err = images.Import(namespaces.WithNamespace(t.Context(), parent), client, lock.ArchivePath(h.image), h.image, images.ImportOptions{Snapshotter: "overlayfs"})
	must(t, err)
	return h
}

// One containerd serves all of these; the last removes whatever there is.
func TestBoxRoot(t *testing.T) {
	h := newHost(t)
	for _, test := range []struct {
		name string
		f    func(*testing.T, *host)
	}{
		{"box", testBox}, {"attach input", testAttachInput}, {"inputs of other file systems", testAttachForeign},
		{"attach too large an input", testAttachInputTooLarge}, {"sweep inputs", testSweepInputs},
		{"kill", testKill}, {"create refuses", testCreateRefuses}, {"sweep", testSweep}, {"sweep bundle", testSweepBundle},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, h) })
	}
}

// What was to clean up after a killed shim was killed as well: neither containerd nor runc knows
// what they have left.
func testSweepBundle(t *testing.T, h *host) {
	bundle, state := filepath.Join(h.Bundles, h.Namespace, "half"), filepath.Join(h.Runc.Root, h.Namespace, "half")
	rootfs := filepath.Join(bundle, "rootfs")
	for _, dir := range []string{rootfs, state, h.boxDir("half")} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, unix.Mount("tmpfs", rootfs, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(rootfs, unix.MNT_DETACH) })
	ids, err := h.Sweep(t.Context())
	must(t, err)
	if !slices.Equal(ids, []string{"half"}) {
		t.Errorf("swept %q", ids)
	}
	for _, dir := range []string{bundle, state} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", dir, err)
		}
	}
}

// spec is of a box with a network namespace of its own.
func (h *host) spec(t *testing.T, id string) box.Spec {
	t.Helper()
	ns, err := netpolicy.NewNamespace(filepath.Join(h.dir, "netns"), id)
	must(t, err)
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	limits := testLimits
	limits.CPUs, limits.ScratchBytes, limits.ScratchInodes = 1, 8<<20, 500
	return box.Spec{ID: id, Image: h.image.Ref(), Limits: limits, NetNS: ns.Path(), Resolver: netpolicy.Resolver}
}

// newBox is one that waits for its program.
func (h *host) newBox(t *testing.T, id string) *containerBox {
	t.Helper()
	b, err := h.Create(t.Context(), h.spec(t, id))
	must(t, err)
	t.Cleanup(func() { destroy(t, b) })
	must(t, b.Start(t.Context()))
	return b.(*containerBox)
}

func destroy(t *testing.T, b box.Box) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range 2 {
		if err := b.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
}

// sh runs a shell script in a box to its end.
func (h *host) sh(t *testing.T, b *containerBox, script string) (box.Exit, string) {
	t.Helper()
	stdin, w, err := os.Pipe()
	must(t, err)
	w.Close()
	r, stdout, err := os.Pipe()
	must(t, err)
	defer r.Close()
	p := box.Program{
		Argv: append(slices.Clone(h.image.Interpreters["sh"]), "-c", script), Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/scratch",
		Stdio: [3]*os.File{stdin, stdout, stdout},
	}
	must(t, b.Go(t.Context(), p))
	stdin.Close()
	stdout.Close()
	r.SetReadDeadline(time.Now().Add(30 * time.Second))
	out, err := io.ReadAll(r)
	must(t, err)
	exit, ok := <-b.Exited()
	if !ok {
		t.Fatalf("the box ended without a word; it wrote %q", out)
	}
	if _, again := <-b.Exited(); again {
		t.Error("it ended twice")
	}
	return exit, string(out)
}

func testBox(t *testing.T, h *host) {
	b := h.newBox(t, "life")
	if b.CgroupID() == 0 {
		t.Error("no cgroup")
	}
	must(t, b.AttachCode("main.sh", []byte("echo from the code; exit 7")))
	exit, out := h.sh(t, b, `
		. /code/main.sh 2>&1 | head -n1
		echo uid=$(id -u) cpus=$(nproc) caps=$(grep CapEff /proc/self/status | cut -f2) nnp=$(grep NoNewPrivs /proc/self/status | cut -f2) seccomp=$(grep Seccomp: /proc/self/status | cut -f2)
		for f in /root-file /code/x /inputs/x /etc/x /sys/x /dev/x /.proctor/x; do (: > $f) 2>/dev/null && echo "$f can be written"; done
		for d in /scratch /outputs /tmp /var/tmp /dev/shm; do (: > $d/x) || echo "$d can't be written"; done
		cat /.proctor/ctl/* 2>/dev/null; ls /.proctor/ctl
		cat /proc/1/environ >/dev/null 2>&1 && echo "init can be read"
		head -c1 /proc/kcore /proc/timer_list /proc/keys 2>/dev/null | grep -v "^==" | grep . && echo "the kernel can be read"
		ls /proc/1/fd 2>/dev/null
		cat /proc/self/mountinfo | grep -c "`+h.dir+`"
		echo result > /outputs/result
		exit 7`)
	if exit != (box.Exit{Code: 7}) {
		t.Errorf("exit %+v", exit)
	}
	want := "from the code\nuid=1000 cpus=1 caps=0000000000000000 nnp=1 seccomp=2\n0\n"
	if out != want {
		t.Errorf("it wrote %q, want %q", out, want)
	}
	if data, err := os.ReadFile(filepath.Join(b.Outputs(), "result")); err != nil || string(data) != "result\n" {
		t.Errorf("outputs: %q, %v", data, err)
	}
	u, err := b.Usage()
	if err != nil || u.CPU <= 0 || u.MemoryPeak <= 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
}

// Kill leaves nobody, also of what has detached itself.
func testKill(t *testing.T, h *host) {
	b := h.newBox(t, "kill")
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	null, err := os.Open("/dev/null")
	must(t, err)
	defer null.Close()
	stdin, w2, err := os.Pipe()
	must(t, err)
	w2.Close()
	must(t, b.Go(t.Context(), box.Program{
		Argv: []string{"/bin/sh", "-c", `(setsid sh -c 'trap "" TERM HUP; sleep 300' &); (sleep 300 &); echo up; sleep 300`}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		Stdio: [3]*os.File{stdin, w, w},
	}))
	stdin.Close()
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, b.Kill(ctx))
	r.SetReadDeadline(time.Now().Add(5 * time.Second))
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("somebody still holds stdout: %q, %v", rest, err)
	}
	if _, ok := <-b.Exited(); ok {
		t.Error("a killed box says how its program ended")
	}
	must(t, b.Kill(ctx))
}

func testCreateRefuses(t *testing.T, h *host) {
	for name, change := range map[string]func(*box.Spec){
		"id with a path":   func(s *box.Spec) { s.ID = "../x" },
		"id with capitals": func(s *box.Spec) { s.ID = "ABC" },
		"no id":            func(s *box.Spec) { s.ID = "" },
		"no limits":        func(s *box.Spec) { s.Limits = box.Limits{} },
		"unknown image":    func(s *box.Spec) { s.Image = "nowhere.invalid/none" },
		"no namespace":     func(s *box.Spec) { s.NetNS = filepath.Join(h.dir, "none") },
	} {
		spec := h.spec(t, strings.ReplaceAll(strings.ToLower(name), " ", "-"))
		change(&spec)
		if b, err := h.Create(t.Context(), spec); err == nil {
			t.Errorf("%s is taken", name)
			destroy(t, b)
		}
	}
	left, err := os.ReadDir(filepath.Join(h.dir, "boxes"))
	if err != nil || len(left) != 0 {
		t.Errorf("%d workspaces are left, %v", len(left), err)
	}
	if groups, err := h.Cgroups.Children(h.Parent); err != nil || len(groups) != 0 {
		t.Errorf("cgroups are left: %v, %v", groups, err)
	}
	if list, err := h.Client.Containers(h.namespaced(t.Context())); err != nil || len(list) != 0 {
		t.Errorf("%d containers are left, %v", len(list), err)
	}
}

// A runtime that comes after a crash removes everything of the one before, in whatever state
// it is, and nothing of anybody else's.
func testSweep(t *testing.T, h *host) {
	running := h.newBox(t, "running")
	created, err := h.Create(t.Context(), h.spec(t, "created"))
	must(t, err)
	t.Cleanup(func() { destroy(t, created) })
	// Half made: a workspace alone, mounted or not, and a group alone.
	_, err = newWorkspace(h.boxDir("half"), testLimits, 1<<30, 1, resolver)
	must(t, err)
	must(t, os.Mkdir(h.boxDir("bare"), 0o700))
	must(t, os.Mkdir(h.Cgroups.Unified(h.group("group")), 0o755))

	// Others', of the same names.
	const theirs = "somebody-else"
	ctx := namespaces.WithNamespace(t.Context(), theirs)
	other, err := h.Client.NewContainer(ctx, "running", containerd.WithRuntime(runtimeName, nil), withSpec(testSpec()))
	must(t, err)
	defer other.Delete(ctx)
	group := testenv.Cgroup(t)
	must(t, os.MkdirAll(h.Cgroups.Unified(group+"/running"), 0o755))
	defer h.Cgroups.Remove(group)
	process := exec.Command("sleep", "300")
	must(t, process.Start())
	defer func() { process.Process.Kill(); process.Wait() }()
	must(t, os.WriteFile(h.Cgroups.Unified(group+"/running/cgroup.procs"), fmt.Append(nil, process.Process.Pid), 0))

	next, err := New(h.Options)
	must(t, err)
	ids, err := next.Sweep(t.Context())
	must(t, err)
	slices.Sort(ids)
	if want := []string{"bare", "created", "group", "half", "running"}; !slices.Equal(ids, want) {
		t.Errorf("swept %v, want %v", ids, want)
	}
	if populated, err := h.Cgroups.Populated(h.Parent); populated || err != nil {
		t.Errorf("somebody lives: %v, %v", populated, err)
	}
	if groups, err := h.Cgroups.Children(h.Parent); err != nil || len(groups) != 0 {
		t.Errorf("cgroups %v, %v", groups, err)
	}
	if left, err := os.ReadDir(filepath.Join(h.dir, "boxes")); err != nil || len(left) != 0 {
		t.Errorf("%d workspaces, %v", len(left), err)
	}
	if list, err := h.Client.Containers(h.namespaced(t.Context())); err != nil || len(list) != 0 {
		t.Errorf("%d containers, %v", len(list), err)
	}
	if err := unix.Kill(int(running.pid), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("init of the running one: %v", err)
	}
	if list, err := h.Client.Containers(ctx); err != nil || len(list) != 1 {
		t.Errorf("%d containers of somebody else's, %v", len(list), err)
	}
	if err := process.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a process of somebody else's: %v", err)
	}
	if ids, err := next.Sweep(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("once more: %v, %v", ids, err)
	}
}

func TestNewWithoutInit(t *testing.T) {
	dir := t.TempDir()
	if _, err := New(Options{Init: filepath.Join(dir, "none"), Dir: dir}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}
