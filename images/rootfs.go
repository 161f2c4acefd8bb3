package images

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// What belongs to every image, whatever the recipe. Paths are relative to the image's root; everything goes through
// os.Root, so that a link in a package can't lead a write out to the building machine.

// agentUID owns what a run may write.
const agentUID = 1000

type dirSpec struct {
	path string
	mode fs.FileMode
	uid  int
}

var layoutDirs = []dirSpec{
	{"inputs", 0o755, 0},
	{"outputs", 0o755, agentUID},
	{"scratch", 0o755, agentUID},
	{"code", 0o755, 0},
	{"tmp", 0o777 | fs.ModeSticky, 0},
	{"proc", 0o555, 0},
	{"dev", 0o755, 0},
	{"sys", 0o555, 0},
	{"run", 0o755, 0},
	{".proctor", 0o755, 0},
	{".proctor/ctl", 0o755, 0},
}

var layoutFiles = []struct {
	path, content string
	mode          fs.FileMode
}{
	{".proctor/init", "", 0o755},
	{"etc/hostname", "box\n", 0o644},
	{"etc/hosts", "127.0.0.1 localhost box\n::1 localhost box\n", 0o644},
	{"etc/resolv.conf", "", 0o644},
	{"etc/machine-id", "", 0o444},
}

// emptied are directories of which only the directory stays: state of the build, and all that names its machine.
var emptied = []string{
	"dev", "etc/apt", "proc", "run", "sys", "tmp", "var/backups", "var/cache", "var/lib/apt", "var/log", "var/tmp",
}

// dropped are paths that go entirely.
var dropped = []string{
	"etc/.pwd.lock", "etc/group-", "etc/gshadow-", "etc/passwd-", "etc/shadow-", "etc/subgid-", "etc/subuid-",
	"etc/dpkg/dpkg.cfg.d/99mmdebstrap", "usr/share/doc-base", "usr/share/info", "usr/share/lintian", "usr/share/locale",
	"usr/share/man", "usr/share/bug", "var/lib/dbus/machine-id", "var/lib/dpkg/lock", "var/lib/dpkg/lock-frontend",
	"var/lib/dpkg/available", "var/lib/dpkg/diversions-old", "var/lib/dpkg/status-old", "var/lib/dpkg/statoverride-old",
	"var/lib/dpkg/triggers/Lock", "var/lib/systemd", "var/lib/ucf/hashfile.0", "var/lib/ucf/registry.0",
}

// finishLayout brings a tree that packages were installed in to the form every image has.
func finishLayout(root *os.Root) error {
	for _, d := range emptied {
		if err := emptyDir(root, d); err != nil {
			return fmt.Errorf("clean /%s: %w", d, err)
		}
	}
	for _, p := range dropped {
		if err := root.RemoveAll(p); err != nil {
			return fmt.Errorf("clean /%s: %w", p, err)
		}
	}
	if err := trimDocs(root); err != nil {
		return err
	}
	for _, d := range layoutDirs {
		if err := root.MkdirAll(d.path, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", d.path, err)
		}
		// A mode given to mkdir is subject to the umask.
		if err := root.Chmod(d.path, d.mode); err != nil {
			return fmt.Errorf("make /%s: %w", d.path, err)
		}
		if err := chown(root, d.path, d.uid); err != nil {
			return fmt.Errorf("make /%s: %w", d.path, err)
		}
	}
	for _, f := range layoutFiles {
		if err := putFile(root, f.path, f.content, f.mode); err != nil {
			return err
		}
	}
	if err := appendAccount(root, "etc/passwd", "agent:x:1000:1000:agent:/scratch:/bin/sh\n"); err != nil {
		return err
	}
	return appendAccount(root, "etc/group", "agent:x:1000:\n")
}

// chown is skipped for builds in tests without root, where everything belongs to the caller.
func chown(root *os.Root, p string, uid int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return root.Lchown(p, uid, uid)
}

// putFile replaces whatever is at p, a link included, by a regular file.
func putFile(root *os.Root, p, content string, mode fs.FileMode) error {
	if err := root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return fmt.Errorf("write /%s: %w", p, err)
	}
	if err := root.RemoveAll(p); err != nil {
		return fmt.Errorf("write /%s: %w", p, err)
	}
	if err := root.WriteFile(p, []byte(content), mode); err != nil {
		return fmt.Errorf("write /%s: %w", p, err)
	}
	if err := root.Chmod(p, mode); err != nil {
		return fmt.Errorf("write /%s: %w", p, err)
	}
	return nil
}

// putRecipeFiles writes a recipe's own files.
func putRecipeFiles(root *os.Root, files map[string]string) error {
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if err := putFile(root, p[1:], files[p], 0o644); err != nil {
			return err
		}
	}
	return nil
}

func appendAccount(root *os.Root, p, line string) error {
	data, err := root.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("add user: %w", err)
	}
	name, _, _ := strings.Cut(line, ":")
	for have := range strings.Lines(string(data)) {
		if strings.HasPrefix(have, name+":") {
			return nil
		}
	}
	return putFile(root, p, string(data)+line, 0o644)
}

func emptyDir(root *os.Root, dir string) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := root.RemoveAll(path.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// trimDocs leaves of the documentation the copyright files, which licences ask to keep.
func trimDocs(root *os.Root) error {
	const docs = "usr/share/doc"
	pkgs, err := fs.ReadDir(root.FS(), docs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("trim documentation: %w", err)
	}
	for _, pkg := range pkgs {
		if !pkg.IsDir() {
			continue
		}
		entries, err := fs.ReadDir(root.FS(), path.Join(docs, pkg.Name()))
		if err != nil {
			return fmt.Errorf("trim documentation: %w", err)
		}
		for _, e := range entries {
			if e.Name() == "copyright" {
				continue
			}
			if err := root.RemoveAll(path.Join(docs, pkg.Name(), e.Name())); err != nil {
				return fmt.Errorf("trim documentation: %w", err)
			}
		}
	}
	return nil
}
