// Package config reads proctor.yaml, the operator's one file, strictly: a key that is not
// known is an error that shows the line.
package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"proctor/strictyaml"
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
	LibDir     string `yaml:"lib_dir"`    // containerd, its shim, runc, proctor-init, proctor-gateway; default: where proctor is
	Images     string `yaml:"images"`     // the lock file and the archives; default STATE_DIR/images

	// Cgroup is the parent of the runs' cgroups. Supervisors on one host must not share
	// it, so the default is "proctor" for the default state directory and has a suffix
	// that follows from the directory for any other.
	Cgroup string `yaml:"cgroup"`

	DefaultImages map[string]string `yaml:"default_images"` // language → image

	Profiles       string  `yaml:"profiles"`        // directory of what runs may reach; default /etc/proctor/profiles
	DefaultProfile string  `yaml:"default_profile"` // of a run that names none; default offline
	Network        Network `yaml:"network"`

	Limits      Limits     `yaml:"limits"`
	OnAuditLoss LossPolicy `yaml:"on_audit_loss"` // what becomes of a run whose record can't be complete; default kill
	StopTimeout Duration   `yaml:"stop_timeout"`  // how long runs may go on after SIGTERM; default 10s
}

// Network is the outside as granted names are looked for there.
type Network struct {
	// Resolvers are ADDRESS[:PORT], asked in this order. Default: those of /etc/resolv.conf.
	Resolvers []string `yaml:"resolvers"`
	// CAFile holds the certificates of the authorities that runs trust, and that hosts with a
	// credential are verified by, in PEM. Default: the system's.
	CAFile string `yaml:"ca_file"`
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
	CPUs          CPUs     `yaml:"cpus"`
	PIDs          Count    `yaml:"pids"`
	Scratch       Size     `yaml:"scratch"`
	ScratchInodes Count    `yaml:"scratch_inodes"`
	Output        Size     `yaml:"output"`
	OpenFiles     Count    `yaml:"open_files"`
	AuditEvents   Count    `yaml:"audit_events"`
}

var builtinDefault = LimitSet{
	Timeout: Duration(time.Minute), Memory: 1 << 30, CPUs: 1, PIDs: 256,
	Scratch: 512 << 20, ScratchInodes: 65_536, Output: 1 << 20, OpenFiles: 4096,
	AuditEvents: 250_000,
}

var builtinCeiling = LimitSet{
	Timeout: Duration(time.Hour), Memory: 16 << 30, CPUs: CPUs(runtime.NumCPU()), PIDs: 4096,
	Scratch: 8 << 30, ScratchInodes: 1 << 20, Output: 64 << 20, OpenFiles: 65_536,
	AuditEvents: 10_000_000,
}

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
	if err := c.parse(name, data); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return c, nil
}

func (c *Config) parse(file string, data []byte) error {
	if err := strictyaml.Decode(file, data, c); !errors.Is(err, strictyaml.ErrEmpty) {
		return err
	}
	return nil // nothing but defaults
}

var validCgroup = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*(/[a-zA-Z0-9][a-zA-Z0-9_.-]*)*$`)

// Complete fills in defaults and checks the whole.
func (c *Config) Complete() error {
	setDefault(&c.StateDir, "/var/lib/proctor")
	setDefault(&c.RunDir, "/run/proctor")
	setDefault(&c.Socket, filepath.Join(c.RunDir, "proctor.sock"))
	setDefault(&c.Images, filepath.Join(c.StateDir, "images"))
	setDefault(&c.Profiles, "/etc/proctor/profiles")
	setDefault(&c.DefaultProfile, "offline")
	if c.LibDir == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("configuration: where this program is: %w", err)
		}
		c.LibDir = filepath.Dir(exe)
	}
	// Relative ones are relative to where the supervisor was started, for all who are told.
	for _, p := range []*string{&c.StateDir, &c.RunDir, &c.Socket, &c.Images, &c.LibDir, &c.Profiles} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		*p = abs
	}
	if c.Cgroup == "" {
		c.Cgroup = "proctor"
		if c.StateDir != "/var/lib/proctor" {
			c.Cgroup = "proctor-" + digest(c.StateDir, 8)
		}
	}
	if !validCgroup.MatchString(c.Cgroup) {
		return fmt.Errorf("configuration: cgroup %q: write a relative path of plain names, such as proctor", c.Cgroup)
	}
	if c.DefaultImages == nil {
		c.DefaultImages = map[string]string{"python": "python-data", "sh": "shell"}
	}
	setDefault(&c.OnAuditLoss, LossPolicy(supervisor.KillOnLoss))
	if c.StopTimeout == 0 {
		c.StopTimeout = Duration(10 * time.Second)
	}
	c.Limits.Default.complete(builtinDefault)
	c.Limits.Ceiling.complete(builtinCeiling)
	return nil
}

func setDefault[T ~string](s *T, value T) {
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
	if l.AuditEvents == 0 {
		l.AuditEvents = d.AuditEvents
	}
}

// validNamespace is what containerd takes, without the dots and underscores that it takes, too.
var validNamespace = regexp.MustCompile(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)

// Namespace is the instance's in containerd: one for each parent cgroup, of the same name
// where containerd takes that.
func (c *Config) Namespace() string {
	if len(c.Cgroup) <= 64 && validNamespace.MatchString(c.Cgroup) {
		return c.Cgroup
	}
	return "proctor-" + digest(c.Cgroup, 16)
}

// digest is n hexadecimal digits that follow from s.
func digest(s string, n int) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:n]
}

// Range is the limits as the supervisor takes them.
func (l Limits) Range() supervisor.LimitRange {
	return supervisor.LimitRange{Default: l.Default.box(), Ceiling: l.Ceiling.box()}
}

func (l LimitSet) box() box.Limits {
	return box.Limits{
		Timeout: time.Duration(l.Timeout), Memory: int64(l.Memory), CPUs: float64(l.CPUs), Processes: int64(l.PIDs),
		ScratchBytes: int64(l.Scratch), ScratchInodes: int64(l.ScratchInodes), OutputBytes: int64(l.Output), OpenFiles: int64(l.OpenFiles),
		AuditEvents: int64(l.AuditEvents),
	}
}
