package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"
)

// externalTimeout bounds the check of an operator's containerd.
const externalTimeout = 5 * time.Second

// External uses the containerd that serves at a socket path (with or without
// unix:// before it). It checks that it answers, is version 2, and has the overlayfs
// snapshotter; it never starts, restarts or stops it. Stop is still to be called.
func External(ctx context.Context, address string) (*Daemon, error) {
	path := strings.TrimPrefix(address, "unix://")
	const orPrivate = "or leave --containerd out to use a private one"
	if path == "" || strings.Contains(path, "://") {
		return nil, fmt.Errorf("containerd address %q is not a unix socket path, such as /run/containerd/containerd.sock", address)
	}
	if len(path) > 107 {
		return nil, fmt.Errorf("containerd address %s has %d bytes, a unix socket path has at most 107: give a shorter path", path, len(path))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, externalTimeout, fmt.Errorf("no answer within %s", externalTimeout))
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no containerd at %s: start it (`systemctl start containerd`), correct the address, %s", path, orPrivate)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("no containerd listens at %s: start it (`systemctl start containerd`), %s", path, orPrivate)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("containerd at %s: permission denied for uid %d: use sudo", path, os.Geteuid())
	case err != nil:
		return nil, fmt.Errorf("containerd at %s: %w", path, err)
	}
	conn.Close()

	client, err := containerd.New(path)
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", path, err)
	}
	defer client.Close()
	version, err := client.Version(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("containerd at %s gives no version (is it containerd?): %w", path, err)
	}
	if major, ok := majorVersion(version.Version); !ok || major != 2 {
		return nil, fmt.Errorf("containerd at %s is version %s, proctor needs version 2: upgrade it, %s", path, version.Version, orPrivate)
	}
	if err := checkOverlayfs(ctx, client); err != nil {
		return nil, fmt.Errorf("containerd at %s: %w; enable the plugin, %s", path, err, orPrivate)
	}
	d := newDaemon(Options{}, path)
	d.external = true
	d.status = Status{Serving: true, Since: time.Now()}
	return d, nil
}

func checkOverlayfs(ctx context.Context, client *containerd.Client) error {
	resp, err := client.IntrospectionService().Plugins(ctx, `type==io.containerd.snapshotter.v1,id==overlayfs`)
	if err != nil {
		return err
	}
	if len(resp.Plugins) == 0 {
		return errors.New("it has no overlayfs snapshotter")
	}
	if e := resp.Plugins[0].InitErr; e != nil {
		return fmt.Errorf("its overlayfs snapshotter does not work: %s", e.Message)
	}
	return nil
}

func majorVersion(v string) (int, bool) {
	v = strings.TrimPrefix(v, "v")
	major, _, ok := strings.Cut(v, ".")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(major)
	return n, err == nil
}

// StoreRoot is where containerd keeps what its snapshotter of that name makes; empty where it
// does not say, or says what is not there.
func (d *Daemon) StoreRoot(ctx context.Context, client *containerd.Client, snapshotter string) string {
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	all, err := client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1")
	if err != nil {
		return ""
	}
	for _, p := range all.Plugins {
		if root := p.Exports["root"]; p.ID == snapshotter && root != "" {
			if _, err := os.Stat(root); err == nil {
				return root
			}
		}
	}
	return ""
}
