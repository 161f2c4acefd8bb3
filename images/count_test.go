package images_test

import (
	"context"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"

	"proctor/images"
)

func countSnapshots(t *testing.T, ctx context.Context, client *containerd.Client) (n int) {
	t.Helper()
	err := client.SnapshotService(images.DefaultSnapshotter).Walk(ctx, func(context.Context, snapshots.Info) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func countBlobs(t *testing.T, ctx context.Context, client *containerd.Client) (n int) {
	t.Helper()
	err := client.ContentStore().Walk(ctx, func(content.Info) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
