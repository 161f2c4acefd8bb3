package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
)

const (
	shimName = "containerd-shim-runc-v2"
	runcName = "runc"

	// containerd refuses a shim socket directory longer than this: the socket's name
	// is a slash and 64 hexadecimal digits, and a unix socket path has 107 bytes.
	maxShimSocketDir = 42
)

// Options say where a private containerd lives and what it runs.
type Options struct {
	// Binary is the path of the containerd executable. The runc shim
	// (containerd-shim-runc-v2) and runc are looked for in the same directory, which
	// is the first of the child's PATH.
	Binary string
	// Root is containerd's persistent directory: images, snapshots, metadata. It is
	// made if missing, for root only.
	Root string
	// State is containerd's directory of what lives until the next boot: sockets,
	// bundles, runc's state. At most 40 bytes, because shim sockets lie below it. It
	// is made if missing, with mode 0711: the root of a container's user namespace
	// has to pass through it to its root file system, and so through its parents.
	State string
	// Logger receives this package's messages and containerd's own. Default: none.
	Logger *slog.Logger
	// StartTimeout bounds the time from launching containerd to its first answer.
	// Default 30 s.
	StartTimeout time.Duration
	// StopTimeout bounds the time from SIGTERM to SIGKILL. Default 10 s.
	StopTimeout time.Duration
	// ProbeInterval is the time between two health checks of a running containerd, and
	// how long each may take. After three without an answer it is taken for hung, killed
	// and restarted. Default 10 s.
	ProbeInterval time.Duration
	// EndTasks is the namespace whose tasks, if an earlier containerd of this State left any,
	// Start ends before containerd would take them over one by one. Their processes are left to
	// whose cgroup they are in. Default: none, tasks go on.
	EndTasks string
}

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 30 * time.Second
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 10 * time.Second
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = 10 * time.Second
	}
	if o.StartTimeout < 0 || o.StopTimeout < 0 || o.ProbeInterval < 0 {
		return o, errors.New("containerd: timeouts and the probe interval must be positive")
	}
	for _, p := range []struct {
		name string
		path *string
	}{{"binary", &o.Binary}, {"root directory", &o.Root}, {"state directory", &o.State}} {
		if *p.path == "" {
			return o, fmt.Errorf("containerd: the %s is not given", p.name)
		}
		abs, err := filepath.Abs(*p.path)
		if err != nil {
			return o, fmt.Errorf("containerd: %s %q: %w", p.name, *p.path, err)
		}
		// The paths stand between single quotes in the configuration file, where TOML
		// knows no escapes.
		if strings.ContainsFunc(abs, func(r rune) bool { return r == '\'' || r == unicode.ReplacementChar || unicode.IsControl(r) }) {
			return o, fmt.Errorf("containerd: %s %q: quotes, control characters and bytes that are not UTF-8 are not allowed; choose another path", p.name, abs)
		}
		*p.path = abs
	}
	if o.Root == o.State {
		return o, fmt.Errorf("containerd: root and state directory are both %s; choose two", o.Root)
	}
	if n := len(o.shimSocketDir()); n > maxShimSocketDir {
		return o, fmt.Errorf("containerd: state directory %s has %d bytes, at most %d fit (unix socket paths end at 107): choose a shorter run directory, such as /run/proctor",
			o.State, len(o.State), maxShimSocketDir-(n-len(o.State)))
	}
	return o, nil
}

// checkBinaries names the first of the three executables that can't be run.
func (o Options) checkBinaries() error {
	for _, path := range []string{o.Binary, o.ShimPath(), o.RuncPath()} {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("missing %s: run `make build`", path)
		case err != nil:
			return fmt.Errorf("check binary: %w", err)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return fmt.Errorf("%s is not an executable file: run `make build`", path)
		}
	}
	return nil
}

// ShimPath is the runc shim that containerd will find.
func (o Options) ShimPath() string { return filepath.Join(filepath.Dir(o.Binary), shimName) }

// RuncPath is the runc that belongs to this containerd.
func (o Options) RuncPath() string { return filepath.Join(filepath.Dir(o.Binary), runcName) }

// RuncRoot is where runc keeps its containers' state. Without it, runc containers of
// all daemons on the host would meet in /run/containerd/runc.
func (o Options) RuncRoot() string { return filepath.Join(o.State, "runc") }

// RuncOptions are the runtime options (of io.containerd.runc.v2) for a task: the runc
// beside containerd, with its state below State.
func (o Options) RuncOptions() *runcoptions.Options {
	return &runcoptions.Options{BinaryName: o.RuncPath(), Root: o.RuncRoot()}
}

// FIFODir is for the pipes of containers' standard streams (cio.WithFIFODir), which
// would otherwise be made in /run/containerd/fifo.
func (o Options) FIFODir() string { return filepath.Join(o.State, "fifo") }

func (o Options) shimSocketDir() string { return filepath.Join(o.State, "s") }
func (o Options) tempDir() string       { return filepath.Join(o.Root, "tmp") }
func (o Options) socket() string        { return filepath.Join(o.State, "containerd.sock") }
func (o Options) ttrpcSocket() string   { return o.socket() + ".ttrpc" }
func (o Options) configFile() string    { return filepath.Join(o.State, "config.toml") }
func (o Options) pidFile() string       { return filepath.Join(o.State, "containerd.pid") }
