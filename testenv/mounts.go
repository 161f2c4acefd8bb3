package testenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A mount is one line of mountinfo, as far as needed here.
type mount struct {
	point   string
	fstype  string
	source  string
	options string // of the superblock: names an overlay's directories
}

func (m mount) String() string { return m.point + " (" + m.fstype + ", " + m.source + ")" }

// readMounts lists this process's mount namespace, in the order of mounting.
func readMounts(t testing.TB) []mount {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var mounts []mount
	for line := range strings.Lines(string(data)) {
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// parseMount reads one line: six fields, optional ones, a dash, three more.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	left, right := strings.Split(before, " "), strings.Split(after, " ")
	if !ok || len(left) < 6 || len(right) < 3 {
		return mount{}, false
	}
	return mount{point: unescape(left[4]), fstype: right[0], source: unescape(right[1]), options: right[2]}, true
}

// unescape undoes the kernel's octal escapes of the bytes that separate fields.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

func mountsBelow(t testing.TB, dir string) []string {
	var points []string
	for _, m := range readMounts(t) {
		if m.point == dir || strings.HasPrefix(m.point, dir+"/") {
			points = append(points, m.point)
		}
	}
	return points
}

// cgroupMounts lists where the hierarchies of the given types are mounted, each once.
func cgroupMounts(t testing.TB, fstypes ...string) []string {
	var points []string
	for _, m := range readMounts(t) {
		if slices.Contains(fstypes, m.fstype) && !slices.Contains(points, m.point) {
			points = append(points, m.point)
		}
	}
	return points
}

// subdirectories lists dir and every directory below it.
func subdirectories(dir string) []string {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		// An error is of a directory that has just gone.
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}
