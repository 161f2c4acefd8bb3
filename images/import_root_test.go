package images_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"proctor/images"
	"proctor/testenv"
)

// privateContainerd starts a containerd of the test's own and returns a client of it and a context with a namespace.
func privateContainerd(t *testing.T) (context.Context, *containerd.Client) {
	t.Helper()
	testenv.Root(t)
	testenv.LeakCheck(t)
	client, err := testenv.Containerd(t).Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return namespaces.WithNamespace(t.Context(), "proctor-images-test"), client
}

// inContainerd lists what an import could leave: images, snapshots and content.
func inContainerd(t *testing.T, ctx context.Context, client *containerd.Client) (names []string, snapshotted, blobs int) {
	t.Helper()
	list, err := client.ImageService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names, countSnapshots(t, ctx, client), countBlobs(t, ctx, client)
}

func TestImport(t *testing.T) {
	ctx, client := privateContainerd(t)
	dir := t.TempDir()
	lock, want := images.PackTree(t, dir, smallTree(t), "tool")

	_, err := images.Present(ctx, client, want)
	wantError(t, err, want.Ref(), "proctor serve")
	if !errors.Is(err, images.ErrNotPresent) {
		t.Errorf("%v is not ErrNotPresent", err)
	}
	var log bytes.Buffer
	img, err := images.Import(ctx, client, lock.ArchivePath(want), want, images.ImportOptions{Progress: images.PlainProgress(&log, "tool: ")})
	if err != nil {
		t.Fatal(err)
	}
	if img.Name() != want.Ref() || img.Target().Digest != want.Digest {
		t.Errorf("imported %s as %s", img.Target().Digest, img.Name())
	}
	for _, phase := range []string{"tool: verify archive", "tool: unpack image"} {
		if !strings.Contains(log.String(), phase) {
			t.Errorf("progress has no %q:\n%s", phase, &log)
		}
	}
	if names, _, _ := inContainerd(t, ctx, client); !slices.Equal(names, []string{want.Ref()}) {
		t.Errorf("images are %v", names)
	}
	spec, err := img.Spec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Config.User != "1000:1000" || spec.Config.WorkingDir != "/scratch" {
		t.Errorf("config is %+v", spec.Config)
	}
	// What is there already needs no archive.
	if _, err := images.Import(ctx, client, filepath.Join(dir, "gone"), want, images.ImportOptions{}); err != nil {
		t.Errorf("second import: %v", err)
	}
	if _, err := images.Present(ctx, client, want); err != nil {
		t.Error(err)
	}
}

func TestPresentRefusesAnotherDigest(t *testing.T) {
	ctx, client := privateContainerd(t)
	lock, one := images.PackTree(t, t.TempDir(), smallTree(t), "tool")
	if _, err := images.Import(ctx, client, lock.ArchivePath(one), one, images.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	other := smallTree(t)
	write(t, other, "etc/passwd", "agent:x:0:0::/:/bin/sh\n", 0o644)
	lock, two := images.PackTree(t, t.TempDir(), other, "tool")
	if _, err := images.Import(ctx, client, lock.ArchivePath(two), two, images.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	// Somebody with access to containerd points the locked name at another image.
	store := client.ImageService()
	rec, err := store.Get(ctx, one.Ref())
	if err != nil {
		t.Fatal(err)
	}
	switched, err := store.Get(ctx, two.Ref())
	if err != nil {
		t.Fatal(err)
	}
	rec.Target = switched.Target
	if _, err := store.Update(ctx, rec, "target"); err != nil {
		t.Fatal(err)
	}
	_, err = images.Present(ctx, client, one)
	wantError(t, err, one.Digest.String(), two.Digest.String())
	if !errors.Is(err, images.ErrDigestMismatch) {
		t.Errorf("%v is not ErrDigestMismatch", err)
	}
}

func TestImportRefuses(t *testing.T) {
	ctx, client := privateContainerd(t)
	flip := func(path string, at int64) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[at] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// relock makes the lock agree with whatever the archive file is now.
	relock := func(path string, img *images.Image) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		img.ArchiveSHA256, img.ArchiveBytes = digest.FromBytes(data), int64(len(data))
	}
	for name, tc := range map[string]struct {
		spoil func(path string, img *images.Image)
		want  []string
	}{
		"archive changed":   {func(p string, _ *images.Image) { flip(p, 3000) }, []string{"locked is", "images build --force tool"}},
		"archive longer":    {func(_ string, i *images.Image) { i.ArchiveBytes++ }, []string{"bytes, locked are"}},
		"archive gone":      {func(p string, _ *images.Image) { os.Remove(p) }, []string{"is missing", "images build tool"}},
		"archive directory": {func(p string, _ *images.Image) { os.Remove(p); os.Mkdir(p, 0o755) }, []string{"not a regular file"}},
		"blob changed": {func(p string, i *images.Image) {
			data, _ := os.ReadFile(p)
			flip(p, int64(bytes.Index(data, []byte{0x28, 0xb5, 0x2f, 0xfd})+20)) // in the zstd layer
			relock(p, i)
		}, nil},
		"another image": {func(_ string, i *images.Image) { i.Digest = digest.FromString("x") }, []string{"holds no proctor.local/tool@" + digest.FromString("x").String()}},
		"another name inside": {func(p string, i *images.Image) {
			_, got := images.PackTreeAs(t, filepath.Dir(p), smallTree(t), "tool", func(digest.Digest) string { return "docker.io/library/debian:12" })
			i.ArchiveSHA256, i.ArchiveBytes = got.ArchiveSHA256, got.ArchiveBytes
		}, []string{"holds no proctor.local/tool@"}},
		"locked name on another digest": {func(p string, i *images.Image) {
			bad := *i
			bad.Digest = digest.FromString("x")
			_, got := images.PackTreeAs(t, filepath.Dir(p), smallTree(t), "tool", func(digest.Digest) string { return bad.Ref() })
			i.Digest, i.ArchiveSHA256, i.ArchiveBytes = bad.Digest, got.ArchiveSHA256, got.ArchiveBytes
		}, []string{"differs from the lock"}},
		"no name inside": {func(p string, i *images.Image) {
			_, got := images.PackTreeAs(t, filepath.Dir(p), smallTree(t), "tool", func(digest.Digest) string { return "" })
			i.ArchiveSHA256, i.ArchiveBytes = got.ArchiveSHA256, got.ArchiveBytes
		}, []string{"holds no proctor.local/tool@"}},
		"locked digest not one": {func(_ string, i *images.Image) { i.Digest = "sha256:00" }, []string{`"sha256:00"`}},
	} {
		t.Run(name, func(t *testing.T) {
			lock, img := images.PackTree(t, t.TempDir(), smallTree(t), "tool")
			path := lock.ArchivePath(img)
			tc.spoil(path, &img)
			_, err := images.Import(ctx, client, path, img, images.ImportOptions{})
			wantError(t, err, tc.want...)
			names, snaps, _ := inContainerd(t, ctx, client)
			if len(names) > 0 || snaps > 0 {
				t.Errorf("left images %v and %d snapshots", names, snaps)
			}
		})
	}
	lock, img := images.PackTree(t, t.TempDir(), smallTree(t), "tool")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := images.Import(cancelled, client, lock.ArchivePath(img), img, images.ImportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("import with a context that has ended: %v", err)
	}
}

func TestPrune(t *testing.T) {
	ctx, client := privateContainerd(t)
	dir := t.TempDir()
	lock, old := images.PackTree(t, dir, smallTree(t), "tool")
	if _, err := images.Import(ctx, client, lock.ArchivePath(old), old, images.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	_, oneImage, oneBlobs := inContainerd(t, ctx, client)
	tree := smallTree(t)
	write(t, tree, "etc/new", "new\n", 0o644)
	lock, img := images.PackTree(t, dir, tree, "tool")
	imported, err := images.Import(ctx, client, lock.ArchivePath(img), img, images.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	oldImage, err := images.Present(ctx, client, old)
	if err != nil {
		t.Fatal(err)
	}
	user, err := client.NewContainer(ctx, "user", containerd.WithImage(oldImage), containerd.WithNewSnapshot("user", oldImage))
	if err != nil {
		t.Fatal(err)
	}
	removed, err := images.Prune(ctx, client, lock)
	if err != nil || len(removed) > 0 {
		t.Errorf("removed %v, error %v, while a container uses the old image", removed, err)
	}
	if err := user.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
		t.Fatal(err)
	}
	removed, err = images.Prune(ctx, client, lock)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{old.Ref()}, removed); diff != "" {
		t.Error(diff)
	}
	names, snaps, blobs := inContainerd(t, ctx, client)
	if !slices.Equal(names, []string{imported.Name()}) || snaps != oneImage || blobs != oneBlobs {
		t.Errorf("left %v, %d snapshots, %d blobs; one image has %d and %d", names, snaps, blobs, oneImage, oneBlobs)
	}
}
