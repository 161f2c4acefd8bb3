package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"proctor/supervisor/box"
)

// containerBox implements box.Box.
type containerBox struct {
	runtime *Runtime
	spec    box.Spec
	idBase  uint32
	cpus    shownCPUs

	work      *workspace
	listener  *net.UnixListener
	container containerd.Container
	task      containerd.Task
	pid       uint32   // of init, on the host
	shim      *os.File // its process; nil where it could not be held
	cgroupID  uint64
	control   *box.Control
	tasked    bool  // containerd was asked for a task
	copied    int64 // bytes of inputs that are on the workspace

	exited chan box.Exit
	waited chan struct{} // closed when the goroutine of Go is done
}

// nullIO is a task without standard streams of containerd's.
func nullIO(id string) (cio.IO, error) { return cio.NullIO(id) }

func withSpec(s *specs.Spec) containerd.NewContainerOpts {
	return func(_ context.Context, _ *containerd.Client, c *containers.Container) error {
		a, err := typeurl.MarshalAny(s)
		if err != nil {
			return err
		}
		c.Spec = a
		return nil
	}
}

func (b *containerBox) group() string    { return b.runtime.group(b.spec.ID) }
func (b *containerBox) CgroupID() uint64 { return b.cgroupID }

// listen makes the socket that init will connect to. It is bound through a descriptor of
// its directory, as a unix socket's path has only 108 bytes.
func (b *containerBox) listen() error {
	dir, err := os.Open(b.work.path("ctl"))
	if err != nil {
		return err
	}
	defer dir.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlName)
	b.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	b.listener.SetUnlinkOnClose(false) // by then that path means something else
	return os.Chmod(b.work.path("ctl", controlName), 0o666)
}

// startTimeout bounds the start of a box, until its init says that it is ready.
const startTimeout = 30 * time.Second

// Start implements box.Box.
func (b *containerBox) Start(ctx context.Context) error {
	// Also because a client of a containerd that is down waits for it.
	ctx, cancel := context.WithTimeout(b.runtime.namespaced(ctx), startTimeout)
	defer cancel()
	if err := b.task.Start(ctx); err != nil {
		return fmt.Errorf("start box: %w", err)
	}
	deadline, _ := ctx.Deadline()
	b.listener.SetDeadline(deadline)
	conn, err := b.listener.AcceptUnix()
	if err != nil {
		return fmt.Errorf("start box: its init did not connect: %w", err)
	}
	// One conversation: the way in is gone before any code could use it.
	err = errors.Join(b.listener.Close(), os.Remove(b.work.path("ctl", controlName)))
	b.listener = nil
	if err != nil {
		conn.Close()
		return fmt.Errorf("start box: close its control socket: %w", err)
	}
	conn.SetDeadline(deadline)
	if b.control, err = box.NewControl(conn); err != nil {
		return fmt.Errorf("start box: %w", err)
	}
	conn.SetDeadline(time.Time{})
	return nil
}

// AttachCode implements box.Box.
func (b *containerBox) AttachCode(name string, code []byte) error {
	if err := b.work.put(filepath.Join("code", name), code); err != nil {
		return fmt.Errorf("code: %w", err)
	}
	return nil
}

// AttachTrust implements box.Box.
func (b *containerBox) AttachTrust(files map[string][]byte) error {
	for name, content := range files {
		if err := b.work.put(filepath.Join("trust", name), content); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	return nil
}

// Go implements box.Box.
func (b *containerBox) Go(_ context.Context, p box.Program) error {
	for _, f := range p.Stdio {
		// A pipe's end can be opened again through /dev/stdout, by its owner.
		if err := f.Chown(int(b.idBase+codeUID), int(b.idBase+codeGID)); err != nil {
			return fmt.Errorf("start program: %w", err)
		}
	}
	if err := b.control.Go(p, b.cpus.set); err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	b.waited = make(chan struct{})
	go func() {
		defer close(b.waited)
		defer close(b.exited)
		exit, err := b.control.Wait(func(int) {})
		if err == nil {
			b.exited <- exit
		}
	}()
	return nil
}

// Exited implements box.Box.
func (b *containerBox) Exited() <-chan box.Exit { return b.exited }

// Kill implements box.Box.
func (b *containerBox) Kill(ctx context.Context) error {
	return b.runtime.Cgroups.Kill(ctx, b.group())
}

// Terminate implements box.Box.
func (b *containerBox) Terminate() error {
	return b.runtime.Cgroups.Signal(b.group(), unix.SIGTERM, int(b.pid))
}

// Usage implements box.Box.
func (b *containerBox) Usage() (box.Usage, error) {
	u, err := b.runtime.Cgroups.Usage(b.group())
	return box.Usage{CPU: u.CPU, MemoryPeak: u.MemoryPeak, ProcessesPeak: u.PIDsPeak, PIDsHit: u.PIDsHit, OOMKills: u.OOMKills}, err
}

// Outputs implements box.Box.
func (b *containerBox) Outputs() string { return b.work.path("outputs") }

// find looks for what containerd has of the box where Create did not get to hold it: it was
// broken off, or it was another supervisor's.
func (b *containerBox) find(ctx context.Context) {
	if b.container == nil {
		// Not found is what is hoped for; any other error comes again at the removal.
		b.container, _ = b.runtime.Client.LoadContainer(ctx, b.spec.ID)
	}
	if b.container != nil && b.task == nil {
		// A task whose shim is gone is not found; its cgroup is killed either way.
		b.task, _ = b.container.Task(ctx, nil)
	}
}

// Destroy implements box.Box.
func (b *containerBox) Destroy(ctx context.Context) error {
	ctx = b.runtime.namespaced(ctx)
	var errs []error
	step := func(what string, err error) {
		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("destroy box: %s: %w", what, err))
		}
	}
	step("kill", b.Kill(ctx))
	if b.control != nil {
		b.control.Close()
		if b.waited != nil {
			<-b.waited
		}
		b.control = nil
	}
	if b.listener != nil {
		b.listener.Close()
		b.listener = nil
	}
	b.find(ctx)
	if b.task == nil && (b.tasked || b.idBase == 0) {
		step("end shim", b.runtime.endShim(b.spec.ID))
	}
	b.tasked = false
	if b.task != nil {
		step("delete task", b.deleteTask(ctx))
		b.task = nil
	}
	if b.container != nil {
		step("delete container", b.container.Delete(ctx, containerd.WithSnapshotCleanup))
		b.container = nil
	}
	if b.shim != nil {
		b.shim.Close()
		b.shim = nil
	}
	if len(errs) == 0 {
		step("remove bundle", b.runtime.removeBundle(b.spec.ID))
	}
	step("remove the shim's socket", b.runtime.removeShimSocket(b.spec.ID))
	step("remove cgroup", b.runtime.Cgroups.Remove(b.group()))
	if b.work != nil {
		step("remove workspace", b.work.close())
		b.work = nil
	}
	step("remove inputs", b.runtime.unstage(b.spec.ID))
	if b.idBase != 0 {
		b.runtime.ids.give(b.idBase)
		b.runtime.processors.give(b.cpus)
		b.idBase = 0
	}
	return errors.Join(errs...)
}
