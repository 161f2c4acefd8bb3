package images

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ErrNoSpace is wrapped where containerd's store has too little room for an image.
var ErrNoSpace = errors.New("too little room in the image store")

// blockBytes is what the last block of a file may waste.
const blockBytes = 4 << 10

// checkSpace says whether there is room for the image as an archive and unpacked, as both are kept.
func checkSpace(store string, want Image) error {
	var st unix.Statfs_t
	if err := unix.Statfs(store, &st); err != nil {
		return fmt.Errorf("image store %s: %w", store, err)
	}
	free, need := int64(st.Bavail)*st.Bsize, want.ArchiveBytes+want.RootBytes+want.RootFiles*blockBytes
	switch {
	case free < need:
		return fmt.Errorf("%w %s: %d MiB are free, the image takes about %d MiB: make room there, and start `proctor serve` again", ErrNoSpace, store, free>>20, (need+1<<20-1)>>20)
	case st.Files > 0 && int64(st.Ffree) < want.RootFiles:
		return fmt.Errorf("%w %s: %d inodes are free, the image has %d files: remove files there, and start `proctor serve` again", ErrNoSpace, store, st.Ffree, want.RootFiles)
	}
	return nil
}

// removeUnfinished removes what an import that failed left of content and snapshots, which containerd would keep
// until it collects garbage for another reason.
func removeUnfinished(ctx context.Context, client *containerd.Client, snapshotter string) error {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	store := client.ContentStore()
	ingests, err := store.ListStatuses(ctx)
	errs := []error{err}
	for _, i := range ingests {
		if err := store.Abort(ctx, i.Ref); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	// On a full disk the first pass may be able to remove content alone, and the second has that room for the rest.
	_ = collect(ctx, client, snapshotter)
	err = collect(ctx, client, snapshotter)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("remove what is unfinished: %w", err)
	}
	return nil
}

// collect has containerd collect garbage, and waits for it. Whoever deletes a lease can do that; the snapshot that goes
// with it has the snapshotter look for all that it need not have.
func collect(ctx context.Context, client *containerd.Client, snapshotter string) error {
	lease, err := client.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		return err
	}
	_, err = client.SnapshotService(snapshotter).Prepare(leases.WithLease(ctx, lease.ID), "garbage-"+lease.ID, "")
	return errors.Join(err, client.LeasesService().Delete(ctx, lease, leases.SynchronousDelete))
}
