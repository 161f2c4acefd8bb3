// Package config reads proctor.yaml, the operator's one file, strictly: a key that is not
// known is an error that shows the line.
package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml"

	"proctor/supervisor"
	"proctor/supervisor/box"
)

// DefaultFile is read when no other is named, if it exists.
const DefaultFile = "/etc/proctor/proctor.yaml"

// Config is proctor.yaml with flags applied and defaults filled in.
type Config struct {
	StateDir   string `yaml:"state_dir"`  // kept across boots; default /var/lib/proctor
	RunDir     string `yaml:"run_dir"`    // until the next boot; default /run/proctor
	Socket     string `yaml:"socket"`     // default RUN_DIR/proctor.sock
	Containerd string `yaml:"containerd"` // socket of an existing containerd; empty: a private one
	LibDir     string `yaml:"lib_dir"`    // containerd, its shim, runc, proctor-init; default: where proctor is
	Images     string `yaml:"images"`     // the lock file and the archives; default STATE_DIR/images

	// Cgroup is the parent of the runs' cgroups. Supervisors on one host must not share
	// it, so the default is "proctor" for the default state directory and has a suffix
	// that follows from the directory for any other.
	Cgroup string `yaml:"cgroup"`

	DefaultImages map[string]string `yaml:"default_images"` // language → image
	Limits        Limits            `yaml:"limits"`
	StopTimeout   Duration          `yaml:"stop_timeout"` // how long runs may go on after SIGTERM; default 10s
}

// Limits are what a run gets by default, and at most.
type Limits struct {
	Default LimitSet `yaml:"default"`
	Ceiling LimitSet `yaml:"ceiling"`
}

// LimitSet is a set of limits; what is left out has the built-in value.
type LimitSet struct {
	Timeout       Duration `yaml:"timeout"`
	Memory        Size     `yaml:"memory"`
	CPUs          float64  `yaml:"cpus"`
	PIDs          int64    `yaml:"pids"`
	Scratch       Size     `yaml:"scratch"`
	ScratchInodes int64    `yaml:"scratch_inodes"`
	Output        Size     `yaml:"output"`
	OpenFiles     int64    `yaml:"open_files"`
}

var builtinDefault = LimitSet{
	Timeout: Duration(time.Minute), Memory: 1 << 30, CPUs: 1, PIDs: 256,
	Scratch: 512 << 20, ScratchInodes: 65_536, Output: 1 << 20, OpenFiles: 4096,
}

var builtinCeiling = LimitSet{
	Timeout: Duration(time.Hour), Memory: 16 << 30, CPUs: float64(runtime.NumCPU()), PIDs: 4096,
	Scratch: 8 << 30, ScratchInodes: 1 << 20, Output: 64 << 20, OpenFiles: 65_536,
}

// Duration is written as Go does, such as 90s or 1h30m.
type Duration time.Duration

func (d *Duration) UnmarshalYAML(data []byte) error {
	v, err := time.ParseDuration(unquote(data))
	if err != nil || v <= 0 {
		return fmt.Errorf("%s: write a positive duration such as 30s or 5m", data)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, written as docker does, such as 512M or 2G (powers of 1024).
type Size int64

func (s *Size) UnmarshalYAML(data []byte) error {
	v, err := units.RAMInBytes(unquote(data))
	if err != nil || v <= 0 {
		return fmt.Errorf("%s: write a positive size such as 512M or 2G", data)
	}
	*s = Size(v)
	return nil
}

func unquote(data []byte) string { return string(bytes.Trim(data, `"'`)) }

// Load reads file. Empty means the default one, which need not exist.
func Load(file string) (*Config, error) {
	c := &Config{}
	name := file
	if name == "" {
		name = DefaultFile
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) && file == "" {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := c.parse(data); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return c, nil
}

func (c *Config) parse(data []byte) error {
	err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(c)
	if errors.Is(err, io.EOF) {
		return nil // nothing in it
	}
	return err
}

var validCgroup = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*(/[a-zA-Z0-9][a-zA-Z0-9_.-]*)*$`)

// Complete fills in defaults and checks the whole.
func (c *Config) Complete() error {
	setDefault(&c.StateDir, "/var/lib/proctor")
	setDefault(&c.RunDir, "/run/proctor")
	for _, p := range []*string{&c.StateDir, &c.RunDir} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		*p = abs
	}
	setDefault(&c.Socket, filepath.Join(c.RunDir, "proctor.sock"))
	setDefault(&c.Images, filepath.Join(c.StateDir, "images"))
	if c.LibDir == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("configuration: where this program is: %w", err)
		}
		c.LibDir = filepath.Dir(exe)
	}
	if c.Cgroup == "" {
		c.Cgroup = "proctor"
		if c.StateDir != "/var/lib/proctor" {
			c.Cgroup = fmt.Sprintf("proctor-%x", sha256.Sum256([]byte(c.StateDir)))[:len("proctor-")+8]
		}
	}
	if !validCgroup.MatchString(c.Cgroup) {
		return fmt.Errorf("configuration: cgroup %q: write a relative path of plain names, such as proctor", c.Cgroup)
	}
	if c.DefaultImages == nil {
		c.DefaultImages = map[string]string{"python": "python-data", "sh": "shell"}
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = Duration(10 * time.Second)
	}
	c.Limits.Default.complete(builtinDefault)
	c.Limits.Ceiling.complete(builtinCeiling)
	return nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func (l *LimitSet) complete(d LimitSet) {
	if l.Timeout == 0 {
		l.Timeout = d.Timeout
	}
	if l.Memory == 0 {
		l.Memory = d.Memory
	}
	if l.CPUs == 0 {
		l.CPUs = d.CPUs
	}
	if l.PIDs == 0 {
		l.PIDs = d.PIDs
	}
	if l.Scratch == 0 {
		l.Scratch = d.Scratch
	}
	if l.ScratchInodes == 0 {
		l.ScratchInodes = d.ScratchInodes
	}
	if l.Output == 0 {
		l.Output = d.Output
	}
	if l.OpenFiles == 0 {
		l.OpenFiles = d.OpenFiles
	}
}

// Namespace is the instance's in containerd: one for each parent cgroup.
func (c *Config) Namespace() string {
	return regexp.MustCompile(`[^a-zA-Z0-9-]`).ReplaceAllString(c.Cgroup, "-")
}

// Range is the limits as the supervisor takes them.
func (l Limits) Range() supervisor.LimitRange {
	return supervisor.LimitRange{Default: l.Default.box(), Ceiling: l.Ceiling.box()}
}

func (l LimitSet) box() box.Limits {
	return box.Limits{
		Timeout: time.Duration(l.Timeout), Memory: int64(l.Memory), CPUs: l.CPUs, Processes: l.PIDs,
		ScratchBytes: int64(l.Scratch), ScratchInodes: l.ScratchInodes, OutputBytes: int64(l.Output), OpenFiles: l.OpenFiles,
	}
}
