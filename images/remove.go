package images

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// removeMatches deletes what a recipe's patterns match.
func removeMatches(root *os.Root, patterns []string) error {
	if len(patterns) == 0 {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(patterns, func(pat string) bool { return matchPath(pat[1:], p) }) {
			return nil
		}
		if err := root.RemoveAll(p); err != nil {
			return fmt.Errorf("remove /%s: %w", p, err)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// matchPath matches segment by segment; "**" stands for any number of segments, also none.
func matchPath(pattern, p string) bool {
	return matchSegments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

func matchSegments(pat, segs []string) bool {
	for len(pat) > 0 {
		if pat[0] == "**" {
			for i := range len(segs) + 1 {
				if matchSegments(pat[1:], segs[i:]) {
					return true
				}
			}
			return false
		}
		if len(segs) == 0 {
			return false
		}
		if ok, err := path.Match(pat[0], segs[0]); err != nil || !ok {
			return false
		}
		pat, segs = pat[1:], segs[1:]
	}
	return len(segs) == 0
}
