package images

import (
	"context"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
)

// watchUnpack reports how much of an image is unpacked until the returned function is called. Containerd tells of the
// start and the end of unpacking only, so the size of the snapshot in the making is asked for.
func watchUnpack(ctx context.Context, client *containerd.Client, want Image, o ImportOptions) (ended func(complete bool)) {
	step := Step{Phase: "unpack image", Total: want.RootBytes, Unit: "bytes"}
	o.Progress.report(step)
	if o.Progress == nil {
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// File systems round sizes up; all of it is there only when unpacking has ended.
			if n := min(unpackedBytes(ctx, client.SnapshotService(o.Snapshotter)), step.Total-1); n > step.Done {
				step.Done = n
				o.Progress.report(step)
			}
		}
	}()
	return func(complete bool) {
		cancel()
		<-done
		if complete {
			step.Done = step.Total
			o.Progress.report(step)
		}
	}
}

// unpackedBytes sums the snapshots that are being unpacked; that of an import is the only one in its namespace. What
// can't be found out counts as nothing.
func unpackedBytes(ctx context.Context, sn snapshots.Snapshotter) int64 {
	var total int64
	_ = sn.Walk(ctx, func(ctx context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindActive && strings.HasPrefix(info.Name, snapshots.UnpackKeyPrefix) {
			if usage, err := sn.Usage(ctx, info.Name); err == nil {
				total += usage.Size
			}
		}
		return nil
	})
	return total
}
