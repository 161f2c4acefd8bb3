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
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/images"
	"proctor/testenv"
)

// TestBuild makes the shell image from Debian's packages twice, runs none of it, and imports it.
func TestBuild(t *testing.T) {
	ctx, client := privateContainerd(t)
	recipe, err := images.Recipes{}.Load("shell")
	if err != nil {
		t.Fatal(err)
	}
	var log, progress bytes.Buffer
	opts := images.BuildOptions{
		Recipe: recipe, OutDir: filepath.Join(testenv.Dir(t), "images"), CacheDir: filepath.Join(testenv.Dir(t), "debs"),
		Log: &log, Progress: images.PlainProgress(&progress, ""),
	}
	first, err := images.Build(ctx, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	t.Logf("first build: %s, %d bytes", first.Elapsed.Round(time.Second), first.Image.ArchiveBytes)
	if !first.Built {
		t.Error("nothing was built")
	}
	for _, phase := range []string{"fetch package lists", "download base packages", "configure packages", "pack layer", "write archive"} {
		if !strings.Contains(progress.String(), phase) {
			t.Errorf("no progress of %q in\n%s", phase, &progress)
		}
	}
	onlyHas(t, opts.OutDir, ".images.flock", images.LockFile, first.Image.Archive)

	start := time.Now()
	again, err := images.Build(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	if again.Built || time.Since(start) > time.Second {
		t.Errorf("built again: %v, in %s", again.Built, time.Since(start))
	}
	if diff := cmp.Diff(first.Image, again.Image); diff != "" {
		t.Error(diff)
	}

	opts.Force = true
	forced, err := images.Build(ctx, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	t.Logf("build with cached packages: %s", forced.Elapsed.Round(time.Second))
	if !forced.Built || forced.Image.Digest != first.Image.Digest || forced.Image.ArchiveSHA256 != first.Image.ArchiveSHA256 {
		t.Errorf("forced build gave %s, first was %s", forced.Image.Digest, first.Image.Digest)
	}
	onlyHas(t, opts.OutDir, ".images.flock", images.LockFile, forced.Image.Archive)

	lock, err := images.LoadLock(filepath.Join(opts.OutDir, images.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	img, err := lock.Resolve("shell")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"dash", "coreutils", "tzdata", "libc6"} {
		if img.Packages[p] == "" {
			t.Errorf("no version of %s in the lock", p)
		}
	}
	if _, err := images.Import(ctx, client, lock.ArchivePath(img), img, images.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := images.Present(ctx, client, img); err != nil {
		t.Error(err)
	}
}

// TestBuildInterrupted ends builds at different points; nothing but the lock's guard may stay.
func TestBuildInterrupted(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	recipe, err := images.Recipes{}.Load("shell")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []string{"fetch package lists", "extract base packages", "unpack base packages"} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := testenv.Dir(t)
			_, err := images.Build(ctx, images.BuildOptions{Recipe: recipe, OutDir: out, Progress: func(s images.Step) {
				if s.Phase == phase {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error is %v", err)
			}
			onlyHas(t, out, ".images.flock")
		})
	}
}

func TestBuildFails(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	const recipe = "name: tool\ndescription: d\nsuite: bookworm\n"
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"no such package": {recipe + "variant: custom\npackages: [no-such-package-here]\ninterpreters: {sh: [/bin/sh]}\n", []string{"build image tool", "no-such-package-here"}},
		"no such suite": {strings.Replace(recipe, "bookworm", "buzz", 1) + "packages: [dash]\ninterpreters: {sh: [/bin/sh]}\n",
			[]string{`"buzz"`, "add a source"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := images.ParseRecipe("tool.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			out := testenv.Dir(t)
			_, err = images.Build(t.Context(), images.BuildOptions{Recipe: r, OutDir: out})
			wantError(t, err, tc.want...)
			onlyHas(t, out, ".images.flock")
		})
	}
}

func TestBuildWaitsItsTurn(t *testing.T) {
	r, err := images.Recipes{}.Load("shell")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	release, err := images.Guard(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = images.Build(ctx, images.BuildOptions{Recipe: r, OutDir: out, Progress: func(s images.Step) {
		if s.Phase == "wait for another build" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestBuildOptionsRefused(t *testing.T) {
	r, err := images.Recipes{}.Load("shell")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		opts images.BuildOptions
		want string
	}{
		{images.BuildOptions{OutDir: t.TempDir()}, "no recipe"},
		{images.BuildOptions{Recipe: r}, "no output directory"},
		{images.BuildOptions{Recipe: r, OutDir: "/tmp/a,b"}, "commas"},
		{images.BuildOptions{Recipe: &images.Recipe{Name: "a/b"}, OutDir: t.TempDir()}, "a/b"},
	} {
		_, err := images.Build(t.Context(), tc.opts)
		wantError(t, err, tc.want)
	}
}

func TestSweepRemovesWhatAKilledBuildLeft(t *testing.T) {
	out := t.TempDir()
	write(t, out, ".build-tool-123/rootfs/etc/passwd", "x", 0o644)
	write(t, out, "tool.oci.tar", "x", 0o644)
	if err := images.SweepBuilds(out); err != nil {
		t.Fatal(err)
	}
	onlyHas(t, out, "tool.oci.tar")
	// Deleting stops before it starts where something is mounted.
	if point, err := images.MountBelow("/"); err != nil || point == "" {
		t.Errorf("no mount below /: %q, %v", point, err)
	}
	if point, err := images.MountBelow(out); err != nil || point != "" {
		t.Errorf("mount below %s: %q, %v", out, point, err)
	}
}

func onlyHas(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("directory has %v, want %v", got, names)
	}
}
