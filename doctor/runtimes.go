package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"proctor/supervisor/daemon"
)

// versionTimeout bounds a program's telling of its version.
const versionTimeout = 5 * time.Second

func checkRuntimes(ctx context.Context, opts Options) []Check {
	var checks []Check
	if opts.BinDir != "" {
		for _, p := range []struct{ name, flag string }{
			{"containerd", "--version"},
			{"containerd-shim-runc-v2", "-v"},
			{"runc", "--version"},
			{"proctor-init", ""},    // tells nothing: it is a box's first process
			{"proctor-gateway", ""}, // neither does this: it is a run's network
		} {
			if p.name == "containerd" && opts.ContainerdAddress != "" {
				continue
			}
			version, err := programVersion(ctx, filepath.Join(opts.BinDir, p.name), p.flag)
			checks = append(checks, outcome(p.name, version, err, "run `make build`"))
		}
	}
	if opts.ContainerdAddress != "" {
		checks = append(checks, checkExternal(ctx, opts.ContainerdAddress))
	}
	return checks
}

func checkExternal(ctx context.Context, address string) Check {
	const name = "containerd (external)"
	d, err := daemon.External(ctx, address)
	if err != nil {
		// The error says what to do, in one sentence with what is wrong.
		return outcome(name, "", err, "give another --containerd, or none")
	}
	if err := d.Stop(ctx); err != nil {
		return Check{Name: name, Status: Warn, Detail: err.Error()}
	}
	return ok(name, "version 2 answers at "+d.Address())
}

// programVersion is the path and, if there is a flag to ask with, the first version
// that the program names.
func programVersion(ctx context.Context, path, flag string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("missing " + path)
	} else if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return "", fmt.Errorf("%s is not an executable file", path)
	}
	if flag == "" {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, flag)
	cmd.Env = []string{} // nothing of ours is its business
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, flag, err)
	}
	version := findVersion(string(out))
	if version == "" {
		return "", errors.New(path + " names no version")
	}
	return version + ", " + path, nil
}

// findVersion is the first word that begins like a version: a digit, perhaps after v,
// and with a dot.
func findVersion(out string) string {
	for _, word := range strings.Fields(out) {
		w := strings.TrimPrefix(word, "v")
		if w != "" && w[0] >= '0' && w[0] <= '9' && strings.Contains(w, ".") {
			return w
		}
	}
	return ""
}

func checkImageTools(ctx context.Context, _ Options) []Check {
	const name = "mmdebstrap"
	path, err := exec.LookPath(name)
	if err != nil {
		return []Check{{name, Warn, "not installed: images can be used, not built", "apt-get install mmdebstrap"}}
	}
	version, err := programVersion(ctx, path, "--version")
	return []Check{outcome(name, version, err, "apt-get install --reinstall mmdebstrap")}
}
