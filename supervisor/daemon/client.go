package daemon

import (
	"fmt"
	"path/filepath"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/defaults"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Address is the path of containerd's socket.
func (d *Daemon) Address() string { return d.address }

// External reports whether containerd is the operator's and not ours to restart.
func (d *Daemon) External() bool { return d.external }

// Client connects to containerd. The caller closes it, before Stop. It survives
// restarts of containerd: a call under way then fails, and one made meanwhile waits
// until containerd serves again, so calls need a deadline.
func (d *Daemon) Client(opts ...containerd.Opt) (*containerd.Client, error) {
	// gRPC would wait ever longer, up to two minutes, before it connects again.
	reconnect := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: 5 * time.Second,
	}
	opts = append([]containerd.Opt{
		containerd.WithExtraDialOpts([]grpc.DialOption{grpc.WithConnectParams(reconnect)}),
		containerd.WithCallOpts([]grpc.CallOption{grpc.WaitForReady(true)}),
	}, opts...)
	c, err := containerd.New(d.address, opts...)
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", d.address, err)
	}
	return c, nil
}

// RuncOptions are [Options.RuncOptions] for a private containerd. For an external one
// they are empty, and its own defaults hold.
func (d *Daemon) RuncOptions() *runcoptions.Options {
	if d.external {
		return &runcoptions.Options{}
	}
	return d.opts.RuncOptions()
}

// FIFODir is where the pipes of containers' standard streams belong; empty for an
// external containerd, whose default then holds.
func (d *Daemon) FIFODir() string {
	if d.external {
		return ""
	}
	return d.opts.FIFODir()
}

// ShimSocketDir is where shims have their sockets; for an external containerd, where they
// are if nobody said otherwise.
func (d *Daemon) ShimSocketDir() string {
	if d.external {
		return filepath.Join(defaults.DefaultStateDir, "s")
	}
	return d.opts.shimSocketDir()
}

// BundleDir is where a private containerd has the bundles of its tasks, by namespace; empty for
// an external one.
func (d *Daemon) BundleDir() string {
	if d.external {
		return ""
	}
	return d.opts.bundles()
}
