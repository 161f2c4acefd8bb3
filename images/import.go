package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/nerdctl/v2/pkg/api/types"
	"github.com/containerd/nerdctl/v2/pkg/imgutil/load"
	"github.com/opencontainers/go-digest"
)

// DefaultSnapshotter keeps the unpacked root file systems.
const DefaultSnapshotter = "overlayfs"

// ErrDigestMismatch is wrapped when an archive or an image in containerd is not the one the lock names.
var ErrDigestMismatch = errors.New("digest differs from the lock file")

// ErrNotPresent is wrapped by Present when an image has not been imported.
var ErrNotPresent = errors.New("image is not imported")

// ImportOptions are the settings of Import.
type ImportOptions struct {
	// Snapshotter to unpack with. Default overlayfs.
	Snapshotter string
	// Store is a directory on the file system where containerd keeps images: whether there is room is looked up there
	// before anything is begun. Empty: it is not.
	Store string
	// Progress is told how far the import is. May be nil.
	Progress Progress
}

// importing keeps imports and prunes of one process apart: what an import added is found by comparing lists of images.
var importing sync.Mutex

// Import loads the archive of a locked image into containerd, in the namespace of the context, and unpacks it. An image
// that is there already costs one look-up. If archive or image are not what the lock names, nothing of them is left.
func Import(ctx context.Context, client *containerd.Client, archive string, want Image, o ImportOptions) (containerd.Image, error) {
	if err := want.check(); err != nil {
		return nil, fmt.Errorf("import image: %w", err)
	}
	if o.Snapshotter == "" {
		o.Snapshotter = DefaultSnapshotter
	}
	importing.Lock()
	defer importing.Unlock()
	if img, err := present(ctx, client, want, o.Snapshotter); err == nil {
		return img, nil
	}
	if err := importArchive(ctx, client, archive, want, o); err != nil {
		return nil, fmt.Errorf("import image %s: %w", want.Name, err)
	}
	img, err := present(ctx, client, want, o.Snapshotter)
	if err != nil {
		return nil, fmt.Errorf("import image %s: %w", want.Name, err)
	}
	return img, nil
}

func importArchive(ctx context.Context, client *containerd.Client, archive string, want Image, o ImportOptions) (err error) {
	f, err := os.Open(archive)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("archive %s is missing: run `proctor images build %s`", archive, want.Name)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := verifyArchive(ctx, f, archive, want, o.Progress); err != nil {
		return err
	}
	if o.Store != "" {
		if err := checkSpace(o.Store, want); err != nil {
			return err
		}
	}
	before, err := imageNames(ctx, client)
	if err != nil {
		return err
	}
	defer func() {
		// What an archive brings under other names, and all it brings when it is the wrong one, goes again.
		err = errors.Join(err, removeAdded(ctx, client, before, want, err == nil))
		if err != nil {
			err = errors.Join(err, removeUnfinished(ctx, client, o.Snapshotter))
		}
	}()
	ended := watchUnpack(ctx, client, want, o)
	_, err = load.FromArchive(ctx, client, types.ImageLoadOptions{
		// The descriptor that was verified, whatever the path leads to by now.
		Input:    fmt.Sprintf("/proc/self/fd/%d", f.Fd()),
		Stdout:   io.Discard,
		Quiet:    true,
		GOptions: types.GlobalCommandOptions{Snapshotter: o.Snapshotter},
	})
	ended(err == nil)
	if err != nil {
		return err
	}
	got, err := client.ImageService().Get(ctx, want.Ref())
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%w: the archive holds no %s: run `proctor images build --force %s`", ErrDigestMismatch, want.Ref(), want.Name)
	}
	if err != nil {
		return err
	}
	if got.Target.Digest != want.Digest {
		return mismatch(want, got.Target.Digest)
	}
	img := containerd.NewImage(client, got)
	unpacked, err := img.IsUnpacked(ctx, o.Snapshotter)
	if err != nil {
		return err
	}
	if !unpacked {
		return img.Unpack(ctx, o.Snapshotter)
	}
	return nil
}

func mismatch(want Image, got digest.Digest) error {
	return fmt.Errorf("%w: %s is %s, locked is %s: run `proctor images build --force %s`", ErrDigestMismatch, want.Name, got, want.Digest, want.Name)
}

// verifyArchive checks the archive's own digest: an early and clear refusal. That the content is what the manifest says
// is containerd's to verify, and that the manifest is the locked one is checked after.
func verifyArchive(ctx context.Context, f *os.File, path string, want Image, progress Progress) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	bad := func(what string) error {
		return fmt.Errorf("%w: archive %s %s: run `proctor images build --force %s`", ErrDigestMismatch, path, what, want.Name)
	}
	if !info.Mode().IsRegular() {
		return bad("is not a regular file")
	}
	if info.Size() != want.ArchiveBytes {
		return bad(fmt.Sprintf("has %d bytes, locked are %d", info.Size(), want.ArchiveBytes))
	}
	sum := digest.SHA256.Digester()
	r := &progressReader{r: ctxReader{ctx, f}, step: Step{Phase: "verify archive", Total: info.Size(), Unit: "bytes"}, progress: progress}
	if _, err := io.CopyBuffer(sum.Hash(), r, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("verify archive %s: %w", path, err)
	}
	if sum.Digest() != want.ArchiveSHA256 {
		return bad(fmt.Sprintf("is %s, locked is %s", sum.Digest(), want.ArchiveSHA256))
	}
	return nil
}

// ctxReader ends a long read when its context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Present returns the image that runs of want are made from. It must have been imported and unpacked, and be exactly
// the locked digest.
func Present(ctx context.Context, client *containerd.Client, want Image) (containerd.Image, error) {
	return present(ctx, client, want, DefaultSnapshotter)
}

func present(ctx context.Context, client *containerd.Client, want Image, snapshotter string) (containerd.Image, error) {
	got, err := client.ImageService().Get(ctx, want.Ref())
	if errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s: start `proctor serve` again, it imports what is locked", ErrNotPresent, want.Ref())
	}
	if err != nil {
		return nil, fmt.Errorf("look up image %s: %w", want.Name, err)
	}
	if got.Target.Digest != want.Digest {
		return nil, mismatch(want, got.Target.Digest)
	}
	img := containerd.NewImage(client, got)
	unpacked, err := img.IsUnpacked(ctx, snapshotter)
	if err != nil {
		return nil, fmt.Errorf("look up image %s: %w", want.Name, err)
	}
	if !unpacked {
		return nil, fmt.Errorf("%w: %s is not unpacked for %s: start `proctor serve` again, it unpacks what is locked", ErrNotPresent, want.Ref(), snapshotter)
	}
	return img, nil
}
