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
	"time"

	"proctor/strictyaml"
	"proctor/supervisor"
	"proctor/supervisor/access"
	"proctor/supervisor/limits"
	"proctor/supervisor/notify"
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

	Limits      limits.Range      `yaml:"limits"`
	OnAuditLoss limits.LossPolicy `yaml:"on_audit_loss"` // what becomes of a run whose record can't be complete; default kill
	// Callers says what users and groups may do. Whom it does not name may run under every profile
	// that lets him, and sees his own runs; root is an operator.
	Callers access.Rules `yaml:"callers"`
	Runs    Runs         `yaml:"runs"`

	// Alerts says what is an alarm, and who is told.
	Alerts notify.Alerts `yaml:"alerts"`
	// Metrics are served at an address, besides the socket; nothing: nowhere else.
	Metrics Metrics `yaml:"metrics"`

	Reserve Reserve `yaml:"reserve"`

	StopTimeout Duration `yaml:"stop_timeout"` // how long runs may go on after SIGTERM; default 10s
}

// Network is the outside as granted names are looked for there.
type Network struct {
	// Resolvers are ADDRESS[:PORT], asked in this order. Default: those of /etc/resolv.conf.
	Resolvers []string `yaml:"resolvers"`
	// CAFile holds the certificates of the authorities that runs trust, and that hosts with a
	// credential are verified by, in PEM. Default: the system's.
	CAFile string `yaml:"ca_file"`
}

// Metrics is where Prometheus may ask.
type Metrics struct {
	// Listen is ADDRESS:PORT. Whoever reaches it reads how many runs there are and of which
	// profiles; it has no names of callers.
	Listen string `yaml:"listen"`
}

// Runs is how many there may be, of all callers.
type Runs struct {
	AtOnce Count `yaml:"at_once"` // default 128
	Queue  Count `yaml:"queue"`   // that wait; default 1024
}

// Reserve is what must be free for a new run, so that those that go on can end properly.
type Reserve struct {
	State  Size  `yaml:"state"`  // in the state directory and where containerd keeps images; default 256M
	Run    Size  `yaml:"run"`    // in the run directory; default 16M
	Inodes Count `yaml:"inodes"` // in each of them; default 1000
	Memory Size  `yaml:"memory"` // of the host's, available; default 256M
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
	err := strictyaml.Decode(file, data, c)
	switch {
	case errors.Is(err, strictyaml.ErrEmpty):
		return nil // nothing but defaults
	case err != nil:
		return err
	}
	for _, check := range []func() error{c.Callers.Check, c.Alerts.Check} {
		if err := check(); err != nil {
			return strictyaml.Locate(file, data, "", err)
		}
	}
	return nil
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
		c.DefaultImages = map[string]string{}
	}
	for language, image := range map[string]string{"python": "python-data", "sh": "shell"} {
		if c.DefaultImages[language] == "" {
			c.DefaultImages[language] = image
		}
	}
	setDefault(&c.OnAuditLoss, limits.KillOnLoss)
	if c.Runs.AtOnce == 0 {
		c.Runs.AtOnce = 128
	}
	if c.Runs.Queue == 0 {
		c.Runs.Queue = 1024
	}
	if c.Reserve.State == 0 {
		c.Reserve.State = 256 << 20
	}
	if c.Reserve.Run == 0 {
		c.Reserve.Run = 16 << 20
	}
	if c.Reserve.Inodes == 0 {
		c.Reserve.Inodes = 1000
	}
	if c.Reserve.Memory == 0 {
		c.Reserve.Memory = 256 << 20
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = Duration(10 * time.Second)
	}
	return nil
}

func setDefault[T ~string](s *T, value T) {
	if *s == "" {
		*s = value
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

// LimitRange is what a run gets by default, and at most, with what is built in where nothing
// is said.
func (c *Config) LimitRange() supervisor.LimitRange {
	def, ceiling := limits.Builtin()
	return supervisor.LimitRange{Default: c.Limits.Default.Box().Or(def), Ceiling: c.Limits.Ceiling.Box().Or(ceiling)}
}
