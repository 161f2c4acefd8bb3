package daemon_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"

	"proctor/supervisor/daemon"
	"proctor/testenv"
)

const namespace = "proctor-test"

func withNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, namespace)
}

func connect(t *testing.T, d *daemon.Daemon) *containerd.Client {
	t.Helper()
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// startTask runs the tiny program in a container called id, without an image.
func startTask(t *testing.T, runc *runcoptions.Options, c *containerd.Client, id string) containerd.Task {
	t.Helper()
	ctx := withNamespace(t.Context())
	container, err := c.NewContainer(ctx, id,
		containerd.WithRuntime("io.containerd.runc.v2", runc),
		containerd.WithNewSpec(
			oci.WithRootFSPath(testenv.TinyRootFS(t)),
			oci.WithProcessArgs("/init"),
			oci.WithCgroup("/"+filepath.Join(testenv.Cgroup(t), id)),
		))
	if err != nil {
		t.Fatal(err)
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return task
}

// endTask ends what startTask started, through any client of the same containerd.
func endTask(t *testing.T, c *containerd.Client, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(withNamespace(t.Context()), 10*time.Second)
	defer cancel()
	container, err := c.LoadContainer(ctx, id)
	if err != nil {
		t.Fatalf("load %s: %v", id, err)
	}
	task, err := container.Task(ctx, nil)
	if err != nil {
		t.Fatalf("task of %s: %v", id, err)
	}
	exit, err := task.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Kill(ctx, syscall.SIGKILL); err != nil {
		t.Fatalf("end %s: %v", id, err)
	}
	status := <-exit
	if code, _, err := status.Result(); err != nil || code != 137 {
		t.Errorf("%s ended with %d, %v", id, code, err)
	}
	if _, err := task.Delete(ctx); err != nil {
		t.Errorf("delete the task of %s: %v", id, err)
	}
	if err := container.Delete(ctx); err != nil {
		t.Errorf("delete %s: %v", id, err)
	}
}

// mustRun fails the test unless the container's task is running with this pid.
func mustRun(t *testing.T, c *containerd.Client, id string, pid uint32) {
	t.Helper()
	ctx := withNamespace(t.Context())
	container, err := c.LoadContainer(ctx, id)
	if err != nil {
		t.Fatalf("load %s: %v", id, err)
	}
	task, err := container.Task(ctx, nil)
	if err != nil {
		t.Fatalf("task of %s: %v", id, err)
	}
	status, err := task.Status(ctx)
	if err != nil {
		t.Fatalf("status of %s: %v", id, err)
	}
	if status.Status != containerd.Running || task.Pid() != pid {
		t.Fatalf("%s is %s with pid %d, want running with %d", id, status.Status, task.Pid(), pid)
	}
}
