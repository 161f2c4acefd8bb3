package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const mergedUsrHook = "/usr/share/mmdebstrap/hooks/merged-usr"

// bootstrap is one run of mmdebstrap.
type bootstrap struct {
	recipe   *Recipe
	work     string // directory of the build, on the file system that the archive goes to
	rootfs   string // made by mmdebstrap
	cache    string // directory of downloaded packages, or empty
	etcApt   string
	epoch    time.Time
	log      io.Writer
	progress Progress
}

// findMmdebstrap looks for what a build needs from the machine.
func findMmdebstrap() error {
	for _, tool := range []string{"mmdebstrap", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed: run `apt-get install mmdebstrap`", tool)
		}
	}
	return nil
}

func (b *bootstrap) run(ctx context.Context) error {
	sources, err := hostSources(b.etcApt, b.recipe.Suite)
	if err != nil {
		return err
	}
	include := b.recipe.Packages
	if len(b.recipe.Without) > 0 {
		src, err := makeStandin(ctx, b.work, b.recipe.Without)
		if err != nil {
			return fmt.Errorf("stand-in package: %w", err)
		}
		sources.stanzas = append(sources.stanzas, src)
		include = append([]string{standinName}, include...)
	}
	sourcesFile := filepath.Join(b.work, "apt.sources")
	if err := os.WriteFile(sourcesFile, []byte(sources.String()), 0o644); err != nil {
		return err
	}
	conf, err := aptConf(ctx, b.etcApt)
	if err != nil {
		return err
	}
	confFile := filepath.Join(b.work, "apt.conf")
	if err := os.WriteFile(confFile, conf, 0o644); err != nil {
		return err
	}
	args := []string{
		"--mode=root", "--format=directory", "--verbose", "--variant=" + b.recipe.Variant,
		"--dpkgopt=force-unsafe-io", "--aptopt=" + confFile, "--include=" + strings.Join(include, ","),
	}
	if _, err := os.Stat(mergedUsrHook); err == nil {
		args = append(args, "--hook-dir="+mergedUsrHook)
	}
	env := []string{}
	if b.cache != "" {
		env = append(env, "PROCTOR_DEB_CACHE="+b.cache)
		args = append(args, "--skip=download/empty", "--skip=essential/unlink",
			`--setup-hook=mkdir -p "$1/var/cache/apt/archives" && cp -n "$PROCTOR_DEB_CACHE"/*.deb "$1/var/cache/apt/archives/" || true`,
			`--customize-hook=cp -n "$1"/var/cache/apt/archives/*.deb "$PROCTOR_DEB_CACHE"/`)
	}
	args = append(args, b.recipe.Suite, b.rootfs, sourcesFile)
	return b.exec(ctx, args, env)
}

func (b *bootstrap) exec(ctx context.Context, args, env []string) error {
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...)
	cmd.Env = append(passedEnv(b.epoch), append(env, "TMPDIR="+b.work)...)
	cmd.SysProcAttr = isolated(0)
	cmd.WaitDelay = 10 * time.Second
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pr.Close()
	cmd.Stdout, cmd.Stderr = pw, pw
	// The parent-death signal follows the thread that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	pw.Close()
	if err != nil {
		return fmt.Errorf("mmdebstrap: %w", err)
	}
	w := aptWatcher{progress: b.progress}
	read := make(chan struct{})
	go func() {
		defer close(read)
		w.read(io.TeeReader(pr, b.log))
	}()
	err = cmd.Wait()
	<-read
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, w.blame())
	}
	return nil
}

// passedEnv is the environment for build commands: fixed, but for what leads to the network.
func passedEnv(epoch time.Time) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "PYTHONHASHSEED=0",
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix()),
	}
	for _, k := range []string{"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// aptConf carries over how this machine's apt reaches its sources: proxies, certificates, credentials.
func aptConf(ctx context.Context, etc string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-config dump: %w", err)
	}
	var conf bytes.Buffer
	for line := range strings.Lines(string(out)) {
		for _, prefix := range []string{"Acquire::http", "Acquire::https", "Acquire::ftp", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIP"} {
			if strings.HasPrefix(line, prefix) {
				conf.WriteString(line)
				break
			}
		}
	}
	fmt.Fprintf(&conf, "Dir::Etc::netrc %q;\nDir::Etc::netrcparts %q;\n", filepath.Join(etc, "auth.conf"), filepath.Join(etc, "auth.conf.d"))
	return conf.Bytes(), nil
}
