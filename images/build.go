package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// builderVersion is part of every image's inputs: raise it when the same recipe comes to give another image.
const builderVersion = "1"

// defaultEpoch is the date of an image and the latest a file in it can have. It is fixed, so that an image's digest
// says what is inside and not when it was built.
var defaultEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// BuildOptions are the inputs of Build.
type BuildOptions struct {
	// Recipe is what to build. Required.
	Recipe *Recipe
	// OutDir gets the archive and the lock file, and holds the tree while it is built: about three times the
	// unpacked size. Made if missing. Required.
	OutDir string
	// CacheDir keeps downloaded packages for later builds. It must be writable by root only. Empty: none are kept.
	CacheDir string
	// EtcApt is where apt's sources and credentials are read. Default /etc/apt.
	EtcApt string
	// Force builds also when recipe and builder are those of the locked image; Debian's packages may have changed.
	Force bool
	// Epoch replaces the fixed date of the image. Default 2026-01-01 UTC.
	Epoch time.Time
	// Progress is told how far the build is. May be nil.
	Progress Progress
	// Log gets the output of all programs that are run. May be nil.
	Log io.Writer
}

// BuildResult is what Build did.
type BuildResult struct {
	Image Image
	// Path is where the archive is.
	Path string
	// Built is false if the locked image was up to date.
	Built bool
	// Elapsed is the time the build took.
	Elapsed time.Duration
}

// Build makes the image of a recipe and enters it in the lock file of OutDir. If the lock already has an image of the
// same recipe and builder and its archive is there, Build returns that at once unless forced.
func Build(ctx context.Context, o BuildOptions) (res BuildResult, err error) {
	start := time.Now()
	if err := o.setDefaults(); err != nil {
		return res, err
	}
	if err := os.MkdirAll(o.OutDir, 0o755); err != nil {
		return res, orNotRoot(fmt.Errorf("image directory: %w", err))
	}
	release, err := guard(ctx, o.OutDir, o.Progress)
	if err != nil {
		return res, orNotRoot(err)
	}
	defer release()
	lock, err := readOrNew(o.OutDir)
	if err != nil {
		return res, err
	}
	inputs := o.Recipe.inputs(o.Epoch)
	if img, ok := lock.images[o.Recipe.Name]; ok && !o.Force && img.Inputs == inputs && archiveThere(lock, img) {
		return BuildResult{Image: img, Path: lock.ArchivePath(img), Elapsed: time.Since(start)}, nil
	}
	if os.Geteuid() != 0 {
		return res, errNotRoot
	}
	if err := findMmdebstrap(); err != nil {
		return res, err
	}
	if err := sweepBuilds(o.OutDir); err != nil {
		return res, err
	}
	work, err := os.MkdirTemp(o.OutDir, buildPrefix+o.Recipe.Name+"-")
	if err != nil {
		return res, fmt.Errorf("build directory: %w", err)
	}
	defer func() { err = errors.Join(err, removeTree(work)) }()
	img, archive, err := build(ctx, o, work)
	if err != nil {
		return res, fmt.Errorf("build image %s: %w", o.Recipe.Name, err)
	}
	img.Inputs, img.Built = inputs, time.Now().UTC().Truncate(time.Second)
	old := lock.images[img.Name].Archive
	if err := os.Rename(archive, lock.ArchivePath(img)); err != nil {
		return res, fmt.Errorf("keep archive: %w", err)
	}
	lock.images[img.Name] = img
	if err := lock.write(); err != nil {
		return res, err
	}
	if old != "" && old != img.Archive {
		if err := os.Remove(filepath.Join(o.OutDir, old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return res, fmt.Errorf("remove the replaced archive: %w", err)
		}
	}
	return BuildResult{Image: img, Path: lock.ArchivePath(img), Built: true, Elapsed: time.Since(start)}, nil
}

var errNotRoot = errors.New("building an image needs root: run it with sudo")

// orNotRoot tells the cause of a refusal where that is known.
func orNotRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%w (%w)", errNotRoot, err)
	}
	return err
}

func (o *BuildOptions) setDefaults() error {
	if o.Recipe == nil {
		return errors.New("build image: no recipe given")
	}
	if err := o.Recipe.Validate(); err != nil {
		return fmt.Errorf("recipe %s: %w", clip(o.Recipe.Name), err)
	}
	if o.OutDir == "" {
		return errors.New("build image: no output directory given")
	}
	for _, dir := range []*string{&o.OutDir, &o.CacheDir} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	if strings.ContainsAny(o.OutDir, ", \t\n") {
		return fmt.Errorf("image directory %q: mmdebstrap takes no commas or white space in paths, choose another", o.OutDir)
	}
	if o.EtcApt == "" {
		o.EtcApt = "/etc/apt"
	}
	if o.Epoch.IsZero() {
		o.Epoch = defaultEpoch
	}
	o.Epoch = o.Epoch.UTC().Truncate(time.Second)
	if o.Log == nil {
		o.Log = io.Discard
	}
	return nil
}

// build does the work in a directory that the caller removes.
func build(ctx context.Context, o BuildOptions, work string) (Image, string, error) {
	rootfs := filepath.Join(work, "rootfs")
	// apt drops to a user of its own for downloads, and must get through.
	if err := os.Chmod(work, 0o755); err != nil {
		return Image{}, "", err
	}
	if o.CacheDir != "" {
		if err := os.MkdirAll(o.CacheDir, 0o700); err != nil {
			return Image{}, "", fmt.Errorf("package cache: %w", err)
		}
	}
	b := bootstrap{
		recipe: o.Recipe, work: work, rootfs: rootfs, cache: o.CacheDir, etcApt: o.EtcApt,
		epoch: o.Epoch, log: o.Log, progress: o.Progress,
	}
	if err := b.run(ctx); err != nil {
		return Image{}, "", err
	}
	pkgs, err := finishRoot(ctx, o, rootfs)
	if err != nil {
		return Image{}, "", err
	}
	img := Image{
		Name: o.Recipe.Name, Description: o.Recipe.Description, Arch: runtime.GOARCH,
		Env: maps.Clone(o.Recipe.Env), Interpreters: maps.Clone(o.Recipe.Interpreters), Packages: pkgs,
	}
	layer, st, err := packLayer(filepath.Join(work, "layer.tar.zst"), rootfs, o.Epoch, o.Progress)
	if err != nil {
		return Image{}, "", err
	}
	for _, p := range st.stripped {
		fmt.Fprintf(o.Log, "proctor: setuid and setgid bits left out: %s\n", p)
	}
	if err := ctx.Err(); err != nil {
		return Image{}, "", err
	}
	oci, err := assemble(o.Recipe, img.Arch, o.Epoch, layer)
	if err != nil {
		return Image{}, "", err
	}
	ref := func(d digest.Digest) string { return Image{Name: img.Name, Digest: d}.Ref() }
	out := filepath.Join(work, "image.oci.tar")
	img.Digest, img.ArchiveSHA256, img.ArchiveBytes, err = writeArchive(out, oci, layer, ref, o.Epoch, o.Progress)
	if err != nil {
		return Image{}, "", err
	}
	img.RootBytes, img.RootFiles = st.bytes, st.files
	// The digest in the name keeps the archive that the old lock speaks of until the new lock is written.
	img.Archive = fmt.Sprintf("%s-%s.oci.tar", img.Name, img.Digest.Encoded()[:12])
	return img, out, ctx.Err()
}

// finishRoot does everything between the installation of packages and the packing of the layer.
func finishRoot(ctx context.Context, o BuildOptions, rootfs string) (map[string]string, error) {
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	pkgs, err := settlePackages(root, o.Recipe.Without)
	if err != nil {
		return nil, err
	}
	if err := putRecipeFiles(root, o.Recipe.Files); err != nil {
		return nil, err
	}
	for _, s := range o.Recipe.Setup {
		o.Progress.report(Step{Phase: s.Name})
		if err := runIn(ctx, rootfs, s, o.Epoch, o.Log); err != nil {
			return nil, err
		}
	}
	o.Progress.report(Step{Phase: "clean up image"})
	if err := removeMatches(root, o.Recipe.Remove); err != nil {
		return nil, err
	}
	if err := finishLayout(root); err != nil {
		return nil, err
	}
	if err := uncheckBytecode(root); err != nil {
		return nil, err
	}
	for _, lang := range slices.Sorted(maps.Keys(o.Recipe.Interpreters)) {
		if err := checkProgram(root, o.Recipe.Interpreters[lang][0]); err != nil {
			return nil, fmt.Errorf("interpreter of %s: %w", lang, err)
		}
	}
	return pkgs, nil
}

// checkProgram follows links as they would be followed in the image.
func checkProgram(root *os.Root, program string) error {
	p := program
	for range 16 {
		info, err := root.Lstat(p[1:])
		if err != nil {
			return fmt.Errorf("%s is not in the image: add its package to the recipe: %w", program, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
				return fmt.Errorf("%s is not a program", program)
			}
			return nil
		}
		target, err := root.Readlink(p[1:])
		if err != nil {
			return err
		}
		if path.IsAbs(target) {
			p = path.Clean(target)
		} else {
			p = path.Join(path.Dir(p), target)
		}
	}
	return fmt.Errorf("%s: too many links", program)
}

// inputs digests all of ours that decides the image.
func (r *Recipe) inputs(epoch time.Time) digest.Digest {
	return digest.FromString(strings.Join([]string{
		builderVersion, runtime.GOARCH, strconv.FormatInt(epoch.Unix(), 10), string(r.source),
	}, "\x00"))
}

func archiveThere(l *Lock, img Image) bool {
	info, err := os.Stat(l.ArchivePath(img))
	return err == nil && info.Mode().IsRegular() && info.Size() == img.ArchiveBytes
}
