package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"proctor/supervisor/room"
)

// Status is how a check came out.
type Status string

const (
	OK      Status = "ok"
	Warn    Status = "warn"    // proctor works, with less
	Untried Status = "untried" // only root can try it
	Fail    Status = "fail"    // proctor serve, or its runs, will not work
)

// A Check is one finding.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`        // what is there, in one line
	Fix    string `json:"fix,omitempty"` // what to do, empty if nothing need be done
}

// Options say which installation is looked at. An empty field leaves out the checks
// that need it.
type Options struct {
	StateDir          string // persistent directory of the supervisor
	RunDir            string // its directory until the next boot
	Socket            string // where clients reach it
	BinDir            string // where containerd, its shim, runc, proctor-init and proctor-gateway are
	ContainerdAddress string // an operator's containerd, used instead of a private one

	Room []room.Place // where there must be room for new runs
}

// Run makes all checks, in the order in which they are best read.
func Run(ctx context.Context, opts Options) []Check {
	var checks []Check
	for _, group := range []func(context.Context, Options) []Check{
		checkRights, checkKernel,
		checkPrograms, checkMaps, checkTrampolines,
		checkCgroups, checkNamespaces,
		checkMounts, checkConfinement,
		checkRuntimes, checkImageTools,
		checkDirectories, checkSupervisor,
	} {
		if ctx.Err() != nil {
			return append(checks, Check{"all checks", Fail, "stopped early: " + context.Cause(ctx).Error(), "run it again"})
		}
		checks = append(checks, group(ctx, opts)...)
	}
	return checks
}

// Count says how many of the checks came out so.
func Count(checks []Check, status Status) (n int) {
	for _, c := range checks {
		if c.Status == status {
			n++
		}
	}
	return n
}

func ok(name, detail string) Check { return Check{Name: name, Status: OK, Detail: detail} }

// outcome is ok with the detail, or what went wrong: for want of rights it was not tried, and
// otherwise it is a failure with its fix.
func outcome(name, detail string, err error, fix string) Check {
	switch {
	case err == nil:
		return ok(name, detail)
	case needsRoot(err):
		return NeedsRoot(name)
	}
	// Joined errors come on a line each.
	return Check{name, Fail, strings.ReplaceAll(err.Error(), "\n", "; "), fix}
}

// NeedsRoot is a check that was not made for want of rights.
func NeedsRoot(name string) Check {
	return Check{name, Untried, "not tried: needs root", "run `sudo proctor doctor`"}
}

// needsRoot reports whether an error may be for want of rights that root would have.
// For root, permission denied is an answer.
func needsRoot(err error) bool {
	return os.Geteuid() != 0 && (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES))
}

// existing is path, or the nearest directory above it that exists: a directory that
// proctor serve is going to make will be on that file system.
func existing(path string) string {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		if path == "/" || path == "." {
			return path
		}
	}
}
