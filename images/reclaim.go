package images

import (
	"context"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
)

// Reclaim gives back what killed imports still hold: each has a lease of a day on what it had
// unpacked by then. The context's namespace is the caller's alone, and nobody imports into it yet.
func Reclaim(ctx context.Context, client *containerd.Client) error {
	importing.Lock()
	defer importing.Unlock()
	left, err := client.LeasesService().List(ctx)
	if err != nil {
		return fmt.Errorf("reclaim what killed imports hold: %w", err)
	}
	for i, l := range left {
		var opts []leases.DeleteOpt
		if i == len(left)-1 {
			opts = append(opts, leases.SynchronousDelete) // which returns when all of it is gone
		}
		if err := client.LeasesService().Delete(ctx, l, opts...); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("reclaim what killed imports hold: lease %s: %w", l.ID, err)
		}
	}
	return nil
}
