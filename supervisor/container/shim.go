package container

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"proctor/supervisor/daemon"
)

// endShim ends the shim of a box that containerd does not know of: it was killed between
// starting the shim and writing that down.
func (r *Runtime) endShim(id string) error {
	pids, err := daemon.Shims{Namespace: r.Namespace, ID: id}.End()
	for _, pid := range pids {
		r.Logger.Warn("ended a shim that containerd did not know", "run", id, "pid", pid)
	}
	return err
}

// holdShim opens the shim of a box whose init has the given number: the parent of that, since
// shims are the reapers of what they start.
func holdShim(init uint32) (*os.File, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", init))
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	// After the name, which may hold anything: state, parent.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return nil, fmt.Errorf("shim: what /proc says of process %d is %q", init, stat)
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("shim %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "shim"), nil
}

// Orphaned implements box.Box.
func (b *containerBox) Orphaned() bool {
	if b.shim == nil {
		return false
	}
	// A descriptor of a process is readable when that has ended.
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.shim.Fd()), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// deleteTask has containerd forget a task. Of one whose shim was killed, containerd takes a
// moment to notice that, and till then answers with what broke.
func (b *containerBox) deleteTask(ctx context.Context) error {
	for {
		_, err := b.task.Delete(ctx, containerd.WithProcessKill)
		if err == nil || errdefs.IsNotFound(err) || !b.Orphaned() {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// removeBundle removes what containerd and runc have on disk of a box that neither knows any
// more: whoever was to clean up after its shim was killed, too. Only a private containerd's is
// known to be nobody else's.
func (r *Runtime) removeBundle(id string) error {
	if r.Bundles == "" || r.Runc.Root == "" {
		return nil
	}
	return daemon.RemoveBundle(r.Bundles, r.Runc.Root, r.Namespace, id)
}

// removeShimSocket removes the socket of a box's shim, which one that was killed leaves. Its
// name is what containerd makes of whose it is.
func (r *Runtime) removeShimSocket(id string) error {
	name := sha256.Sum256([]byte(filepath.Join(r.Address, r.Namespace, id)))
	if err := os.Remove(filepath.Join(r.ShimSockets, hex.EncodeToString(name[:]))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
