package images_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"proctor/images"
	"proctor/testenv"
)

// noise is what can't be compressed.
func noise(n int, seed uint64) string {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(1, seed))
	for b.Len() < n {
		b.WriteByte(byte(r.Uint32()))
	}
	return b.String()
}

// However full the store becomes during an import, nothing of the image is left when that fails,
// and with room it is imported.
func TestImportIntoFullStore(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	opts := testenv.DaemonOptions(t)
	disk := testenv.NewDisk(t, filepath.Join(testenv.Dir(t), "root"), 64<<20, 2000)
	opts.Root = disk.Dir
	client, err := testenv.StartContainerd(t, opts).Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx := namespaces.WithNamespace(t.Context(), "proctor-images-test")

	tree := smallTree(t)
	for i, name := range []string{"a", "b", "c"} {
		write(t, tree, name, noise(2<<20, uint64(i)), 0o644)
	}
	lock, want := images.PackTree(t, t.TempDir(), tree, "tool")
	check := func(what string, o images.ImportOptions, wants ...string) {
		t.Helper()
		_, err := images.Import(ctx, client, lock.ArchivePath(want), want, o)
		if err == nil {
			t.Fatalf("%s: imported", what)
		}
		for _, w := range wants {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: no %q in %v", what, w, err)
			}
		}
		if o.Store != "" && !errors.Is(err, images.ErrNoSpace) {
			t.Errorf("%s: %v", what, err)
		}
		if names, snapshots, blobs := inContainerd(t, ctx, client); len(names) > 0 || snapshots > 0 || blobs > 0 {
			t.Errorf("%s: left are images %q, %d snapshots, %d blobs", what, names, snapshots, blobs)
		}
		if ingests, err := client.ContentStore().ListStatuses(ctx); err != nil || len(ingests) > 0 {
			t.Errorf("%s: left are %v, %v", what, ingests, err)
		}
	}
	const full = "no space left on device"
	for _, left := range []int64{0, 64 << 10, 1 << 20, 5 << 20, 8 << 20, 11 << 20} {
		disk.Fill(left)
		before := disk.Free()
		check("bytes", images.ImportOptions{}, "import image tool", full)
		if after := disk.Free(); after < before-256<<10 {
			t.Errorf("with %d KiB free, %d KiB are left in use", left>>10, (before-after)>>10)
		}
		check("bytes, looked at", images.ImportOptions{Store: disk.Dir}, "too little room in the image store "+disk.Dir, "MiB are free, the image takes about 1", "make room there")
		disk.MakeRoom()
	}
	for _, left := range []int64{0, 1, 3, 8, 12, 15} {
		disk.FillInodes(left)
		before := disk.FreeInodes()
		check("inodes", images.ImportOptions{}, "import image tool", full)
		if after := disk.FreeInodes(); after < before-3 {
			t.Errorf("with %d inodes free, %d are left in use", left, before-after)
		}
		disk.MakeRoom()
	}
	disk.FillInodes(3)
	check("inodes, looked at", images.ImportOptions{Store: disk.Dir}, "3 inodes are free, the image has", "remove files there")
	disk.MakeRoom()
	if _, err := images.Import(ctx, client, lock.ArchivePath(want), want, images.ImportOptions{Store: disk.Dir}); err != nil {
		t.Errorf("with room: %v", err)
	}
	if _, err := images.Present(ctx, client, want); err != nil {
		t.Error(err)
	}
}
