// Package host puts a supervisor together from a configuration: containerd, the kernel's
// programs, the images and the runtime, each brought up in that order and taken down in
// reverse. Whoever calls [Start] calls [Host.Stop].
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"proctor/bpf"
	"proctor/images"
	"proctor/netpolicy"
	"proctor/supervisor"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/config"
	"proctor/supervisor/container"
	"proctor/supervisor/daemon"
	"proctor/supervisor/profile"
)

// Snapshotter is containerd's that boxes' root file systems come from. It is one that can
// shift ids for a user namespace without copying.
const Snapshotter = "overlayfs"

// Host is a running supervisor and everything under it.
type Host struct {
	Supervisor *supervisor.Supervisor
	Daemon     *daemon.Daemon

	log      *slog.Logger
	releases []func(context.Context) error
}

// Start brings everything up. progress is told what takes long.
func Start(ctx context.Context, c *config.Config, log *slog.Logger, progress images.Progress) (_ *Host, err error) {
	h := &Host{log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := Check(c); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.StateDir, c.RunDir} {
		// Passable for the root of a box's user namespace, which reaches its root file
		// system through here; listable for nobody else.
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("directory: %w", err)
		}
	}
	client, err := h.containerd(ctx, c)
	if err != nil {
		return nil, err
	}
	cgroups, err := h.cgroups(c.Cgroup)
	if err != nil {
		return nil, err
	}
	sensor, err := bpf.Open(bpf.Options{
		Cgroup: cgroups.Unified(c.Cgroup), Dir: filepath.Join(c.RunDir, "kernel"), Permitted: container.Permitted(),
		Own: []netip.Addr{netpolicy.Own4, netpolicy.Own6}, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	h.onRelease(func(context.Context) error { return sensor.Remove() })

	lock, err := h.images(ctx, c, client, progress)
	if err != nil {
		return nil, err
	}
	runtime, err := container.New(container.Options{
		Client: client, Namespace: c.Namespace(), Cgroups: cgroups, Parent: c.Cgroup, Dir: c.RunDir,
		Runc: h.Daemon.RuncOptions(), Init: filepath.Join(c.LibDir, "proctor-init"), Snapshotter: Snapshotter, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	outside, err := network(c)
	if err != nil {
		return nil, err
	}
	h.Supervisor, err = supervisor.New(supervisor.Options{
		Profiles: supervisor.Profiles{Dir: c.Profiles, Default: c.DefaultProfile}, Network: outside,
		StateDir: c.StateDir, RunDir: c.RunDir, OnLoss: supervisor.LossPolicy(c.OnAuditLoss), Runtime: runtime, Sensor: sensor, Lock: lock,
		DefaultImages: c.DefaultImages, Limits: c.Limits.Range(), StopTimeout: time.Duration(c.StopTimeout), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if err := h.Supervisor.Start(ctx); err != nil {
		return nil, err
	}
	h.onRelease(func(ctx context.Context) error { h.Supervisor.Stop(ctx); return nil })
	h.prune(ctx, c, client, lock)
	return h, nil
}

// Check says what would keep Start from working and can be seen at once.
func Check(c *config.Config) error {
	if os.Geteuid() != 0 {
		return errors.New("the supervisor needs root: start it with sudo")
	}
	if err := c.Limits.Range().Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if _, err := resolvers(c.Network.Resolvers); err != nil {
		return fmt.Errorf("configuration: network: %w", err)
	}
	if _, err := roots(c.Network.CAFile); err != nil {
		return fmt.Errorf("configuration: network: %w", err)
	}
	if _, err := profile.Find(c.Profiles, c.DefaultProfile); err != nil {
		return fmt.Errorf("configuration: default_profile: %w", err)
	}
	return nil
}

func (h *Host) onRelease(f func(context.Context) error) { h.releases = append(h.releases, f) }

// Stop takes everything down: runs first, containerd last. It may be called again.
func (h *Host) Stop(ctx context.Context) error {
	var errs []error
	for _, release := range slices.Backward(h.releases) {
		errs = append(errs, release(ctx))
	}
	h.releases = nil
	return errors.Join(errs...)
}

func (h *Host) containerd(ctx context.Context, c *config.Config) (*containerd.Client, error) {
	var err error
	if c.Containerd != "" {
		h.Daemon, err = daemon.External(ctx, c.Containerd)
	} else {
		h.Daemon, err = daemon.Start(ctx, daemon.Options{
			Binary: filepath.Join(c.LibDir, "containerd"),
			Root:   filepath.Join(c.StateDir, "containerd"),
			State:  filepath.Join(c.RunDir, "containerd"),
			Logger: h.log,
		})
	}
	if err != nil {
		return nil, err
	}
	h.onRelease(h.Daemon.Stop)
	client, err := h.Daemon.Client()
	if err != nil {
		return nil, err
	}
	h.onRelease(func(context.Context) error { return client.Close() })
	return client, nil
}

func (h *Host) cgroups(parent string) (cgroup.Host, error) {
	cgroups, err := cgroup.Detect()
	if err != nil {
		return cgroups, err
	}
	if err := cgroups.MakeParent(parent); err != nil {
		return cgroups, err
	}
	h.onRelease(func(context.Context) error { cgroups.RemoveIfEmpty(parent); return nil })
	return cgroups, nil
}

// images brings what the lock names into containerd.
func (h *Host) images(ctx context.Context, c *config.Config, client *containerd.Client, progress images.Progress) (*images.Lock, error) {
	lock, err := images.LoadLock(filepath.Join(c.Images, images.LockFile))
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, c.Namespace())
	for _, img := range lock.All() {
		if _, err := images.Present(ctx, client, img); err == nil {
			continue
		}
		h.log.Info("importing image", "image", img.Name, "digest", img.Digest)
		if _, err := images.Import(ctx, client, lock.ArchivePath(img), img, images.ImportOptions{Snapshotter: Snapshotter, Progress: progress}); err != nil {
			return nil, err
		}
	}
	return lock, nil
}

// prune removes images that the lock no longer names, once no box is made from them.
func (h *Host) prune(ctx context.Context, c *config.Config, client *containerd.Client, lock *images.Lock) {
	removed, err := images.Prune(namespaces.WithNamespace(ctx, c.Namespace()), client, lock)
	if err != nil {
		h.log.Warn("old images are not all removed", "error", err)
	}
	for _, name := range removed {
		h.log.Info("removed image that is not in the lock any more", "image", name)
	}
}
