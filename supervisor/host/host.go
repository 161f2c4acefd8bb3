// Package host puts a supervisor together from a configuration: containerd, the kernel's
// programs, the images and the runtime, each brought up in that order and taken down in
// reverse. Whoever calls [Start] calls [Host.Stop].
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"proctor/alerts/desk"
	"proctor/audit"
	"proctor/bpf"
	"proctor/images"
	"proctor/netpolicy"
	"proctor/supervisor"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/config"
	"proctor/supervisor/container"
	"proctor/supervisor/daemon"
	"proctor/supervisor/metrics"
	"proctor/supervisor/notify"
	"proctor/supervisor/profile"
	"proctor/supervisor/turns"
)

// Snapshotter is containerd's that boxes' root file systems come from. It is one that can
// shift ids for a user namespace without copying.
const Snapshotter = "overlayfs"

// Host is a running supervisor and everything under it.
type Host struct {
	Supervisor *supervisor.Supervisor
	Daemon     *daemon.Daemon
	Alarms     *desk.Desk
	Metrics    *metrics.Metrics

	log      *slog.Logger
	releases []func(context.Context) error
}

// Start brings everything up. version is what metrics say; progress is told what takes long.
func Start(ctx context.Context, c *config.Config, version string, log *slog.Logger, progress images.Progress) (_ *Host, err error) {
	h := &Host{log: log, Metrics: metrics.New(version)}
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

	store := c.ContainerdRoot()
	if c.Containerd != "" {
		store = h.Daemon.StoreRoot(ctx, client, Snapshotter)
	}
	lock, err := h.images(ctx, c, client, store, progress)
	if err != nil {
		return nil, err
	}
	runtime, err := container.New(container.Options{
		Client: client, Namespace: c.Namespace(), Address: h.Daemon.Address(), ShimSockets: h.Daemon.ShimSocketDir(), Bundles: h.Daemon.BundleDir(), Cgroups: cgroups, Parent: c.Cgroup, Dir: c.RunDir, Staging: filepath.Join(c.StateDir, "inputs"),
		StagingReserve: 2 * int64(c.Reserve.State), // new runs are refused at half of it
		Runc:           h.Daemon.RuncOptions(), Init: filepath.Join(c.LibDir, "proctor-init"), Snapshotter: Snapshotter, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	outside, err := network(c)
	if err != nil {
		return nil, err
	}
	if err := h.alarms(c); err != nil {
		return nil, err
	}
	h.Supervisor, err = supervisor.New(supervisor.Options{
		Profiles: supervisor.Profiles{Dir: c.Profiles, Default: c.DefaultProfile}, Network: outside,
		StateDir: c.StateDir, RunDir: c.RunDir, OnLoss: c.OnAuditLoss, Runtime: runtime, Sensor: sensor, Lock: lock,
		DefaultImages: c.DefaultImages, Limits: c.LimitRange(), StopTimeout: time.Duration(c.StopTimeout), Logger: log,
		MemoryReserve: int64(c.Reserve.Memory), Alarms: h.Alarms, OnEnd: h.Metrics.Ended, Places: c.Places(store), Runs: turns.Options{AtOnce: int(c.Runs.AtOnce), Queue: int(c.Runs.Queue)},
	})
	if err != nil {
		return nil, err
	}
	if err := h.Supervisor.Start(ctx); err != nil {
		return nil, err
	}
	h.Alarms.Sight(h.blind)
	h.onRelease(func(ctx context.Context) error { h.Supervisor.Stop(ctx); return nil })
	h.prune(ctx, c, client, lock)
	return h, nil
}

// alarms opens what tells people.
func (h *Host) alarms(c *config.Config) error {
	routes, err := c.Alerts.Open()
	if err != nil {
		return err
	}
	if c.Alerts.Untold() {
		h.log.Warn("incidents that fit no route are told to nobody", "fix", notify.UntoldFix)
	}
	h.Alarms, err = desk.Open(desk.Options{
		File: filepath.Join(c.StateDir, "alerts.db"), History: filepath.Join(c.StateDir, "alerts.history"), Rules: c.Alerts.Watched(), Quiet: c.Alerts.Quiet(), Reopen: c.Alerts.Reopen(), Routes: routes, Log: h.log, Delivered: h.Metrics.Delivered, HideCode: c.Alerts.HideCode,
		Code: func(run string) audit.Text {
			if c.Alerts.HideCode {
				return ""
			}
			r, err := h.Supervisor.Records().Open(run)
			if err != nil {
				return ""
			}
			return desk.Head(r.Path("code"), notify.CodeLines)
		},
	})
	if err != nil {
		return err
	}
	h.onRelease(func(context.Context) error { return h.Alarms.Close() })
	return nil
}

// Scrape answers Prometheus.
func (h *Host) Scrape() http.Handler {
	return h.Metrics.Handler(metrics.Source{
		Counters: h.Supervisor.Counters, Active: h.Supervisor.Active, Waiting: func() int { return len(h.Supervisor.Waiting()) },
		Usage: h.Supervisor.Usage, Room: h.Supervisor.Room, Book: h.Alarms.Book(), Sinks: h.Alarms.Sinks,
	}, h.log)
}

// containerdDown is how long containerd may be down, as for a restart, before somebody is told.
const containerdDown = 30 * time.Second

// blind is what keeps runs from being seen or made.
func (h *Host) blind() map[string]error {
	all := map[string]error{}
	if err := h.Supervisor.Check(); err != nil {
		all["the kernel's programs"] = err
	}
	for _, r := range h.Supervisor.Room() {
		if r.Problem != "" {
			all["room in "+r.Name] = errors.New(r.Problem)
		}
	}
	if st := h.Daemon.Status(); !h.Daemon.External() && !st.Serving && time.Since(st.Since) > containerdDown {
		all["containerd"] = fmt.Errorf("it is down since %s", st.Since.Format(time.DateTime))
	}
	return all
}

// Check says what would keep Start from working and can be seen at once. It reads the secrets of
// sinks, and changes nothing.
func Check(c *config.Config) error {
	if os.Geteuid() != 0 {
		return errors.New("the supervisor needs root: start it with sudo")
	}
	if err := c.LimitRange().Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if _, err := resolvers(c.Network.Resolvers); err != nil {
		return fmt.Errorf("configuration: network: %w", err)
	}
	if _, err := roots(c.Network.CAFile); err != nil {
		return fmt.Errorf("configuration: network: %w", err)
	}
	if l := c.Metrics.Listen; l != "" {
		_, port, err := net.SplitHostPort(l)
		if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
			return fmt.Errorf("configuration: metrics.listen: %q: write ADDRESS:PORT of this host, such as 127.0.0.1:9464", l)
		}
	}
	if _, err := profile.Find(c.Profiles, c.DefaultProfile); err != nil {
		return fmt.Errorf("configuration: default_profile: %w", err)
	}
	return c.Alerts.CheckHost(c.Profiles)
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
			Root:   c.ContainerdRoot(),
			State:  filepath.Join(c.RunDir, "containerd"),
			Logger: h.log,
			// All runs that there were are swept.
			EndTasks: c.Namespace(),
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
func (h *Host) images(ctx context.Context, c *config.Config, client *containerd.Client, store string, progress images.Progress) (*images.Lock, error) {
	lock, err := images.LoadLock(filepath.Join(c.Images, images.LockFile))
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, c.Namespace())
	if err := images.Reclaim(ctx, client); err != nil {
		return nil, err
	}
	for _, img := range lock.All() {
		if _, err := images.Present(ctx, client, img); err == nil {
			continue
		}
		h.log.Info("importing image", "image", img.Name, "digest", img.Digest)
		if _, err := images.Import(ctx, client, lock.ArchivePath(img), img, images.ImportOptions{Snapshotter: Snapshotter, Store: store, Progress: progress}); err != nil {
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
