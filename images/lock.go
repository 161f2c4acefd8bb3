package images

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"proctor/strictyaml"
)

// LockFile is the name of the lock file in a directory of images.
const LockFile = "images.lock"

const lockVersion = 1

// ErrUnknownImage is wrapped by Resolve for a name that is not in the lock.
var ErrUnknownImage = errors.New("image is not in the lock file")

// Image is one locked image.
type Image struct {
	// Name is what a run asks for.
	Name string `yaml:"-"`
	// Digest is the manifest's: the one thing that identifies what runs.
	Digest digest.Digest `yaml:"digest"`
	// Archive is the OCI archive's file name, in the lock file's directory.
	Archive string `yaml:"archive"`
	// ArchiveSHA256 and ArchiveBytes are of the archive file as a whole.
	ArchiveSHA256 digest.Digest `yaml:"archive_sha256"`
	ArchiveBytes  int64         `yaml:"archive_bytes"`
	// RootBytes and RootFiles are what the image takes unpacked.
	RootBytes int64 `yaml:"root_bytes"`
	RootFiles int64 `yaml:"root_files"`
	// Arch is the Debian and OCI name of the architecture, such as amd64.
	Arch string `yaml:"arch"`
	// Built is when, in UTC; it is not part of the image.
	Built time.Time `yaml:"built"`
	// Inputs is the digest of everything of ours that decides the image: recipe and builder.
	Inputs digest.Digest `yaml:"inputs"`
	// Description, Env and Interpreters are the recipe's.
	Description  string              `yaml:"description"`
	Env          map[string]string   `yaml:"env"`
	Interpreters map[string][]string `yaml:"interpreters"`
	// Packages maps each Debian package inside to its version.
	Packages map[string]string `yaml:"packages"`
}

// Ref is the name under which the image is kept in containerd.
func (i Image) Ref() string { return refHost + "/" + i.Name + "@" + i.Digest.String() }

// Languages lists the languages the image has interpreters for, sorted.
func (i Image) Languages() []string { return slices.Sorted(maps.Keys(i.Interpreters)) }

// Lock is a lock file's content. It is not safe for concurrent change.
type Lock struct {
	dir    string
	images map[string]Image
}

// lockYAML is the lock as it is written.
type lockYAML struct {
	Version int              `yaml:"version"`
	Images  map[string]Image `yaml:"images"`
}

// LoadLock reads a lock file. That there is none is an error that says how to make one.
func LoadLock(path string) (*Lock, error) {
	l, err := readLock(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no image lock at %s: run `proctor images build --dir %s` first: %w", path, filepath.Dir(path), fs.ErrNotExist)
	}
	return l, err
}

func readLock(path string) (*Lock, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseLock(path, data)
}

// ParseLock reads a lock strictly. file is used in errors, and its directory is where archives are looked for.
func ParseLock(file string, data []byte) (*Lock, error) {
	var y lockYAML
	if err := strictyaml.Decode(file, data, &y); err != nil {
		return nil, err
	}
	if y.Version != lockVersion {
		return nil, fmt.Errorf("%s: version is %d, this Proctor reads %d: build the images again", file, y.Version, lockVersion)
	}
	l := &Lock{dir: filepath.Dir(file), images: make(map[string]Image, len(y.Images))}
	for _, name := range slices.Sorted(maps.Keys(y.Images)) {
		img := y.Images[name]
		img.Name = name
		if err := img.check(); err != nil {
			return nil, locateField(file, data, badField("images."+name, "%v", err))
		}
		l.images[name] = img
	}
	return l, nil
}

func (i Image) check() error {
	if err := checkName(i.Name); err != nil {
		return err
	}
	for _, d := range []digest.Digest{i.Digest, i.ArchiveSHA256, i.Inputs} {
		if err := checkDigest(d); err != nil {
			return err
		}
	}
	if i.Archive == "" || filepath.Base(i.Archive) != i.Archive || strings.HasPrefix(i.Archive, ".") {
		return fmt.Errorf("archive %q is not a plain file name", clip(i.Archive))
	}
	if i.ArchiveBytes <= 0 || i.RootBytes < 0 || i.RootFiles < 0 {
		return errors.New("sizes must be positive")
	}
	for _, lang := range i.Languages() {
		if argv := i.Interpreters[lang]; !languageSyntax.MatchString(lang) || len(argv) == 0 || !cleanAbs(argv[0]) {
			return fmt.Errorf("interpreter of %q is not an absolute path with arguments", clip(lang))
		}
	}
	for k := range i.Env {
		if !envSyntax.MatchString(k) || strings.ContainsRune(i.Env[k], 0) {
			return fmt.Errorf("env %q is not a variable", clip(k))
		}
	}
	return nil
}

// Names lists the locked images, sorted.
func (l *Lock) Names() []string { return slices.Sorted(maps.Keys(l.images)) }

// All lists the locked images, sorted by name.
func (l *Lock) All() []Image {
	all := make([]Image, 0, len(l.images))
	for _, name := range l.Names() {
		all = append(all, l.images[name])
	}
	return all
}

// Resolve returns the image that a run may use under a name. Anything but a name in the lock is refused.
func (l *Lock) Resolve(name string) (Image, error) {
	if err := checkName(name); err != nil {
		return Image{}, err
	}
	img, ok := l.images[name]
	if !ok {
		have := "none"
		if len(l.images) > 0 {
			have = strings.Join(l.Names(), ", ")
		}
		return Image{}, fmt.Errorf("%w: %q (locked: %s): use one of these, or add it with `proctor images build %s`",
			ErrUnknownImage, name, have, name)
	}
	return img, nil
}

// ArchivePath is where an image's archive is.
func (l *Lock) ArchivePath(img Image) string { return filepath.Join(l.dir, img.Archive) }
