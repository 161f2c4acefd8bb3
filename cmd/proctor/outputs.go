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
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"proctor/api"
	"proctor/audit"
)

var outputsCommand = &cli.Command{
	Name:      "outputs",
	Usage:     "get what a run left in /outputs",
	ArgsUsage: "RUN",
	Description: `Writes the outputs of a run that has ended below --output-dir. Names stay as the program chose
them, nothing leaves the directory, and nothing that exists is replaced.`,
	OnUsageError: usageError,
	Action:       outputsAction,
	Flags: []cli.Flag{
		socketFlag,
		&cli.StringFlag{Name: "output-dir", Aliases: []string{"o"}, Value: ".", Usage: "put them into `DIR`; files that exist are not replaced", TakesFile: true},
	},
}

func outputsAction(c *cli.Context) error {
	run, err := one(c, "name one run: see `proctor audit list`")
	if err != nil {
		return err
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	info, err := cl.Show(c.Context, run)
	if err != nil {
		return err
	}
	if info.Verdict == nil {
		return fmt.Errorf("run %s: has not ended: wait for it, or `proctor kill` it", run)
	}
	out, err := openOutputDir(c.String("output-dir"))
	if err != nil {
		return err
	}
	defer out.close()
	if err := out.fetch(c.Context, cl, info.Verdict); err != nil {
		return err
	}
	for _, f := range info.Verdict.Outputs {
		fmt.Println(f.Name.Printable())
	}
	return nil
}

// outputDir is where a run's outputs go. The names in it are the code's choice: every step
// stays beneath the directory, and nothing that exists is touched.
type outputDir struct {
	dir  string
	root *os.Root
	made []string // directories that were not there, outermost first
}

// openOutputDir makes dir where it is not there, and refuses one that cannot be written to,
// before anything runs. The caller closes it.
func openOutputDir(dir string) (*outputDir, error) {
	o := &outputDir{dir: dir}
	fail := func(err error) (*outputDir, error) {
		o.abandon()
		return nil, fmt.Errorf("output directory %q: %w: name one that you can write to", dir, cause(err))
	}
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		o.made = slices.Insert(o.made, 0, d)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fail(err)
	}
	var err error
	if o.root, err = os.OpenRoot(dir); err != nil {
		return fail(err)
	}
	return o, nil
}

func (o *outputDir) close() { o.root.Close() }

// abandon removes the directories that were made for a run that did not take place.
func (o *outputDir) abandon() {
	for _, d := range slices.Backward(o.made) {
		_ = os.Remove(d) // what is not empty is somebody's
	}
}

// fetch writes every output. What cannot be written is named, and the others still are.
func (o *outputDir) fetch(ctx context.Context, c *api.Client, v *audit.Verdict) error {
	var errs []error
	for i, f := range v.Outputs {
		if err := o.one(ctx, c, v.Run, i, f); err != nil {
			errs = append(errs, fmt.Errorf("output %q: %w", f.Name.Printable(), err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w (%d of %d outputs not written; `proctor outputs %s` gets them)", errs[0], len(errs), len(v.Outputs), v.Run)
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
			_ = o.root.Remove(name)
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
