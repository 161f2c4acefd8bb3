package testenv

import (
	"os"
	"path/filepath"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"proctor/supervisor/daemon"
)

// Root lets a test that needs root go on. Without PROCTOR_ROOT_TESTS=1 the test is
// skipped; with it, a host that can't run the test fails it, so that a green result
// means that the test ran.
func Root(t testing.TB) {
	t.Helper()
	if os.Getenv("PROCTOR_ROOT_TESTS") != "1" {
		t.Skip("root test: set PROCTOR_ROOT_TESTS=1 (make test does)")
	}
	if uid := os.Geteuid(); uid != 0 {
		t.Fatalf("root test: PROCTOR_ROOT_TESTS=1 but the uid is %d: run `sudo make test`", uid)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		t.Fatalf("root test: capabilities: %v", err)
	}
	if caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		t.Fatal("root test: no CAP_SYS_ADMIN: run outside an unprivileged container")
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Fatalf("root test: the kernel has no BTF: %v", err)
	}
	if len(cgroupMounts(t, "cgroup2")) == 0 {
		t.Fatal("root test: cgroup v2 is not mounted: `proctor doctor` says what to do")
	}
}

// BinDir is where the built binaries are: PROCTOR_BIN, or bin in the module's root.
func BinDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PROCTOR_BIN")
	if dir == "" {
		dir = filepath.Join(ModuleRoot(t), "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("missing %s: run `make build`, or set PROCTOR_BIN", filepath.Join(dir, name))
		}
	}
	return dir
}

// ModuleRoot is the directory of go.mod, found from the test's working directory,
// which `go test` sets to the package's.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

// DaemonOptions are options for a containerd of this test's own in a new [Dir].
// A test that needs several starts, or starts in another process, begins here.
func DaemonOptions(t testing.TB) daemon.Options {
	t.Helper()
	dir := Dir(t)
	return daemon.Options{
		Binary: filepath.Join(BinDir(t), "containerd"),
		Root:   filepath.Join(dir, "root"),
		State:  filepath.Join(dir, "run"),
		Logger: Logger(t),
	}
}

// Containerd starts a containerd for this test and stops it at the test's end.
func Containerd(t testing.TB) *daemon.Daemon {
	t.Helper()
	return StartContainerd(t, DaemonOptions(t))
}

// StartContainerd starts a containerd with options and stops it at the test's end.
func StartContainerd(t testing.TB, opts daemon.Options) *daemon.Daemon {
	t.Helper()
	d, err := daemon.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(cleanupContext(t)); err != nil {
			t.Errorf("stop containerd: %v", err)
		}
	})
	return d
}

// CollectGarbage has a containerd remove what nothing refers to any more, as the directories of
// snapshots that were removed, and returns when that is done.
func CollectGarbage(t testing.TB, address, namespace string) {
	t.Helper()
	c, err := containerd.New(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := namespaces.WithNamespace(t.Context(), namespace)
	l, err := c.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.LeasesService().Delete(ctx, l, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
}
