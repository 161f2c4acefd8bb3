package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"proctor/api"
	"proctor/audit"
)

// outputDir is where a run's outputs go. The names in it are the code's choice: every step
// stays beneath the directory, and nothing that exists is touched.
type outputDir struct {
	dir  string
	root *os.Root
}

func openOutputDir(dir string) (*outputDir, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("output directory: %w: name one that you can write to", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("output directory: %w", err)
	}
	return &outputDir{dir: dir, root: root}, nil
}

func (o *outputDir) close() { o.root.Close() }

// fetch writes every output. What cannot be written is named, and the others still are.
func (o *outputDir) fetch(ctx context.Context, c *api.Client, v *audit.Verdict) error {
	var errs []error
	for i, f := range v.Outputs {
		if err := o.one(ctx, c, v.Run, i, f); err != nil {
			errs = append(errs, fmt.Errorf("output %q: %w", f.Name.Printable(), err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w (%d of %d outputs not written; the supervisor keeps them with the run)", errs[0], len(errs), len(v.Outputs))
	}
	return nil
}

func (o *outputDir) one(ctx context.Context, c *api.Client, run string, n int, f audit.OutputFile) (err error) {
	name := string(f.Name)
	if dir := path.Dir(name); dir != "." {
		if err := o.root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	w, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return errors.New("exists already and is not replaced: choose an empty --output-dir")
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, w.Close())
		if err != nil {
			o.root.Remove(name)
		}
	}()
	sum := sha256.New()
	if err := c.Output(ctx, run, n, io.MultiWriter(w, sum)); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("arrived as sha256 %s, the verdict says %s", got, f.SHA256)
	}
	return nil
}
