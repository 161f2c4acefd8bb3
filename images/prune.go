package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	cimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
)

// imageNames lists what the context's namespace holds.
func imageNames(ctx context.Context, client *containerd.Client) (map[string]bool, error) {
	list, err := client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(list))
	for _, i := range list {
		names[i.Name] = true
	}
	return names, nil
}

// removeAdded deletes the images that were not there before, but for want itself if it is to stay.
func removeAdded(ctx context.Context, client *containerd.Client, before map[string]bool, want Image, keep bool) error {
	// Also when the caller has gone.
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	after, err := imageNames(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for name := range after {
		if before[name] || (keep && name == want.Ref()) {
			continue
		}
		errs = append(errs, removeImage(ctx, client, name))
	}
	return errors.Join(errs...)
}

// cleanupContext outlives its parent by as long as a clean-up may take.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}

// removeImage deletes an image and waits until the snapshots and content that only it used are gone.
func removeImage(ctx context.Context, client *containerd.Client, name string) error {
	err := client.ImageService().Delete(ctx, name, cimages.SynchronousDelete())
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove image %s: %w", name, err)
	}
	return nil
}

// Prune removes Proctor's images that the lock no longer names, and with them their snapshots. Images that a container
// was made from are left for a later call. It returns the names removed.
func Prune(ctx context.Context, client *containerd.Client, lock *Lock) ([]string, error) {
	importing.Lock()
	defer importing.Unlock()
	keep := map[string]bool{}
	for _, i := range lock.All() {
		keep[i.Ref()] = true
	}
	containers, err := client.ContainerService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("prune images: %w", err)
	}
	for _, c := range containers {
		keep[c.Image] = true
	}
	names, err := imageNames(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("prune images: %w", err)
	}
	var removed []string
	for name := range names {
		if keep[name] || !strings.HasPrefix(name, refHost+"/") {
			continue
		}
		if err := removeImage(ctx, client, name); err != nil {
			return removed, fmt.Errorf("prune images: %w", err)
		}
		removed = append(removed, name)
	}
	return removed, nil
}
