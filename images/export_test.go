package images

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// What the external tests need of the inside.

var (
	HostSources     = func(etc, suite string) (string, error) { s, err := hostSources(etc, suite); return s.String(), err }
	FinishLayout    = finishLayout
	RemoveMatches   = removeMatches
	UncheckBytecode = uncheckBytecode
	SettlePackages  = settlePackages
	SweepBuilds     = sweepBuilds
	MountBelow      = mountBelow
)

// LayerOf writes the tree's layer and returns the paths that lost setuid or setgid bits.
func LayerOf(w io.Writer, root string) ([]string, error) {
	st, err := writeLayer(w, root, defaultEpoch, nil)
	return st.stripped, err
}

// PackTree makes an archive and a lock with one image out of a tree, as Build does after mmdebstrap.
func PackTree(t testing.TB, dir, root, name string) (*Lock, Image) {
	return PackTreeAs(t, dir, root, name, func(d digest.Digest) string { return Image{Name: name, Digest: d}.Ref() })
}

// PackTreeAs is PackTree with another name inside the archive.
func PackTreeAs(t testing.TB, dir, root, name string, ref func(digest.Digest) string) (*Lock, Image) {
	t.Helper()
	r := &Recipe{
		Name: name, Description: "a test", Suite: "bookworm", Variant: "essential", Packages: []string{"dash"},
		Interpreters: map[string][]string{"sh": {"/bin/sh"}}, Env: map[string]string{"LANG": "C.UTF-8"},
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(t.TempDir(), "layer")
	layer, st, err := packLayer(blob, root, defaultEpoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	oci, err := assemble(r, runtime.GOARCH, defaultEpoch, layer)
	if err != nil {
		t.Fatal(err)
	}
	img := Image{
		Name: name, Description: r.Description, Arch: runtime.GOARCH, Env: r.Env, Interpreters: r.Interpreters,
		Packages: map[string]string{"dash": "1"}, Inputs: r.inputs(defaultEpoch), RootBytes: st.bytes, RootFiles: st.files,
		Built: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), Archive: name + ".oci.tar",
	}
	path := filepath.Join(dir, img.Archive)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	img.Digest, img.ArchiveSHA256, img.ArchiveBytes, err = writeArchive(path, oci, layer, ref, defaultEpoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := readOrNew(dir)
	if err != nil {
		t.Fatal(err)
	}
	lock.images[name] = img
	if err := lock.write(); err != nil {
		t.Fatal(err)
	}
	return lock, img
}

// Watch feeds mmdebstrap's output to the progress watcher and returns the steps and the blame.
func Watch(r io.Reader) (steps []string, blame string) {
	w := aptWatcher{progress: func(s Step) { steps = append(steps, s.String()) }}
	w.read(r)
	return steps, w.blame()
}

// Guard holds a directory as a build does.
func Guard(ctx context.Context, dir string) (func(), error) { return guard(ctx, dir, nil) }
