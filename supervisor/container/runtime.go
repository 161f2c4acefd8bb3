package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sync/errgroup"

	"proctor/supervisor/box"
	"proctor/supervisor/cgroup"
)

// Options of New. Every field is required, but for those that say what they are without.
type Options struct {
	Client      *containerd.Client // stays the caller's
	Namespace   string             // containerd's: one per supervisor instance
	Address     string             // containerd's socket, and
	ShimSockets string             // the directory of its shims', by which these are known
	Bundles     string             // where it has its containers' bundles; empty: its own business
	Cgroups     cgroup.Host
	Parent      string // cgroup below which boxes get theirs; exists
	Dir         string // for workspaces; on the same mount namespace as containerd's shims
	Staging     string // where large inputs get a name; best on the file system that has them
	// StagingReserve is what copies of inputs leave free there, in bytes.
	StagingReserve int64
	Runc           *options.Options // containerd's for the runc shim; nil: its defaults
	Init           string           // the box's init binary
	Snapshotter    string
	Logger         *slog.Logger
}

// Runtime implements box.Runtime.
type Runtime struct {
	Options
	ids        idRanges
	processors processors
	allotting  sync.Mutex // held while a copy takes its room
}

// New checks the options. There is nothing to close.
func New(o Options) (*Runtime, error) {
	if _, err := os.Stat(o.Init); err != nil {
		return nil, fmt.Errorf("container runtime: %w: build it with `make build`", err)
	}
	if o.Runc == nil {
		o.Runc = &options.Options{}
	}
	for _, dir := range []string{filepath.Join(o.Dir, "boxes"), o.Staging} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("container runtime: %w", err)
		}
	}
	return &Runtime{Options: o, ids: idRanges{used: map[uint32]bool{}}}, nil
}

// createTimeout bounds containerd's part in making a box.
const createTimeout = 30 * time.Second

const runtimeName = "io.containerd.runc.v2"

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func (r *Runtime) namespaced(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.Namespace)
}

func (r *Runtime) boxDir(id string) string { return filepath.Join(r.Dir, "boxes", id) }
func (r *Runtime) group(id string) string  { return filepath.Join(r.Parent, id) }

// Create implements box.Runtime.
func (r *Runtime) Create(ctx context.Context, spec box.Spec) (_ box.Box, err error) {
	if !validID.MatchString(spec.ID) {
		return nil, fmt.Errorf("box id %q: must match %s", spec.ID, validID)
	}
	if err := spec.Limits.Validate(); err != nil {
		return nil, err
	}
	b := &containerBox{runtime: r, spec: spec, exited: make(chan box.Exit, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create box: %w", err), b.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	b.idBase = r.ids.take()
	b.cpus = r.processors.take(spec.Limits.CPUs)
	if b.work, err = newWorkspace(r.boxDir(spec.ID), spec.Limits, b.idBase, b.cpus.n, spec.Resolver); err != nil {
		return nil, err
	}
	if err := b.listen(); err != nil {
		return nil, err
	}

	// A call broken off may have been carried out or not: none is, however long the caller
	// stays.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.namespaced(ctx)), createTimeout)
	defer cancel()
	image, err := r.Client.GetImage(ctx, spec.Image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", spec.Image, err)
	}
	oci := ociSpec(spec, b.idBase, r.group(spec.ID), b.work, r.Init)
	b.container, err = r.Client.NewContainer(ctx, spec.ID,
		containerd.WithSnapshotter(r.Snapshotter),
		containerd.WithNewSnapshot(spec.ID, image, containerd.WithUserNSRemapperLabels(oci.Linux.UIDMappings, oci.Linux.GIDMappings)),
		containerd.WithRuntime(runtimeName, r.Runc),
		withSpec(oci),
	)
	if err != nil {
		return nil, err
	}
	// The code's pipes go over the control socket: containerd's own are not needed.
	b.tasked = true
	if b.task, err = b.container.NewTask(ctx, nullIO); err != nil {
		return nil, err
	}
	b.pid = b.task.Pid()
	if b.shim, err = holdShim(b.pid); err != nil {
		return nil, err
	}
	if b.cgroupID, err = r.Cgroups.ID(r.group(spec.ID)); err != nil {
		return nil, fmt.Errorf("%w: runc made no cgroup v2 directory for the box", err)
	}
	if err := r.Cgroups.LimitTCP(r.group(spec.ID), spec.Limits.Memory); err != nil {
		return nil, err
	}
	return b, nil
}

// Sweep implements box.Runtime. It looks in the places this instance puts things, not
// at names: containerd's namespace, the parent cgroup, the directories of workspaces and inputs.
func (r *Runtime) Sweep(ctx context.Context) ([]string, error) {
	ctx = r.namespaced(ctx)
	found := map[string]bool{}
	var errs []error

	containers, err := r.Client.Containers(ctx)
	errs = append(errs, err)
	groups, err := r.Cgroups.Children(r.Parent)
	errs = append(errs, err)
	for _, dir := range []string{filepath.Join(r.Dir, "boxes"), r.Staging} {
		entries, err := os.ReadDir(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			found[e.Name()] = true
		}
	}
	for _, c := range containers {
		found[c.ID()] = true
	}
	for _, g := range groups {
		found[g] = true
	}

	// Several at a time: who starts again after a crash is waited for.
	const atOnce = 8
	var group errgroup.Group
	group.SetLimit(atOnce)
	var mu sync.Mutex
	var ids []string
	for id := range found {
		group.Go(func() error {
			r.Logger.Info("sweeping what an earlier supervisor left", "run", id)
			b := &containerBox{runtime: r, spec: box.Spec{ID: id}, work: &workspace{dir: r.boxDir(id)}}
			err := b.Destroy(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("sweep %s: %w", id, err))
			} else {
				ids = append(ids, id)
			}
			return nil
		})
	}
	_ = group.Wait() // it has no error of its own
	return ids, errors.Join(errs...)
}

// idRanges hands out ranges of user ids to boxes. Ranges are chosen at random, so that two
// supervisors on one host are unlikely to hold the same one.
type idRanges struct {
	mu   sync.Mutex
	used map[uint32]bool
}

// The ranges lie in the upper half of what is neither dynamic users nor signed: from
// 2^30 to 2^31, above what useradd's subuids and systemd-nspawn take.
const (
	firstRange = 1 << 30
	rangeCount = 1 << 14
)

func (r *idRanges) take() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		base := firstRange + rand.Uint32N(rangeCount)*idRange
		if !r.used[base] {
			r.used[base] = true
			return base
		}
	}
}

func (r *idRanges) give(base uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.used, base)
}
