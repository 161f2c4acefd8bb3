package images

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// buildPrefix starts the names of build directories. They are kept apart from images, whose names start with a letter
// or digit.
const buildPrefix = ".build-"

// sweepBuilds removes what killed builds left. The caller holds the directory's guard, so none of them is running.
func sweepBuilds(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, buildPrefix+"*"))
	if err != nil {
		return err
	}
	for _, d := range left {
		if err := removeTree(d); err != nil {
			return fmt.Errorf("remove what a killed build left: %w", err)
		}
	}
	return nil
}

// removeTree deletes a build directory, but never through a mount: /dev or /proc of the machine could be there.
func removeTree(dir string) error {
	point, err := mountBelow(dir)
	if err != nil {
		return err
	}
	if point != "" {
		return fmt.Errorf("%s is mounted: unmount it, then remove %s", point, dir)
	}
	return os.RemoveAll(dir)
}

// mountBelow returns a mount point below a directory, if there is one.
func mountBelow(dir string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], strings.TrimSuffix(dir, "/")+"/") && f[4] != dir {
			return f[4], nil
		}
	}
	return "", nil
}
