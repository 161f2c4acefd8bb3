package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proctor/supervisor"
	"proctor/supervisor/box"
	"proctor/supervisor/limits"
)

func load(t *testing.T, content string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proctor.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

func TestLoad(t *testing.T) {
	c, err := load(t, `
# The operator's.
state_dir: /srv/proctor   # kept
run_dir: "/run/p"
socket: '/run/p/s'
containerd: /run/containerd/containerd.sock
lib_dir: /opt/lib
images: /srv/images
cgroup: system/proctor
default_images:
  python: mine
limits:
  default: {timeout: 90s, memory: 512M, cpus: 0.5, pids: 64, scratch: 1G, scratch_inodes: 1000, output: 64k, open_files: 100, audit_events: 5000}
  ceiling:
    timeout: &long 2h   # an anchor
    memory: 2147483648
    cpus: 3
on_audit_loss: mark
stop_timeout: *long
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		StateDir: "/srv/proctor", RunDir: "/run/p", Socket: "/run/p/s", Containerd: "/run/containerd/containerd.sock",
		LibDir: "/opt/lib", Images: "/srv/images", Cgroup: "system/proctor", DefaultImages: map[string]string{"python": "mine"},
		Limits: limits.Range{
			Default: limits.Set{Timeout: Duration(90 * time.Second), Memory: 512 << 20, CPUs: 0.5, PIDs: 64, Scratch: 1 << 30, ScratchInodes: 1000, Output: 64 << 10, OpenFiles: 100, AuditEvents: 5000},
			Ceiling: limits.Set{Timeout: Duration(2 * time.Hour), Memory: 2 << 30, CPUs: 3},
		},
		OnAuditLoss: "mark", StopTimeout: Duration(2 * time.Hour),
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestLoadNothing(t *testing.T) {
	for _, content := range []string{"", "\n", "# only a comment\n", "---\n", "limits:\n"} {
		c, err := load(t, content)
		if err != nil {
			t.Errorf("%q: %v", content, err)
		} else if diff := cmp.Diff(&Config{}, c); diff != "" {
			t.Errorf("%q: %s", content, diff)
		}
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Load(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a file that is named and is not there: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, test := range []struct {
		name, content string
		says          []string // the line's number and what stands there among them
	}{
		{"unknown key", "state_dir: /a\nstatedir: /b\n", []string{"yaml:2: ", `unknown field "statedir"`}},
		{"unknown key below", "limits:\n  default:\n    timout: 3s\n", []string{"yaml:3: ", `"timout"`}},
		{"key twice", "state_dir: /a\nstate_dir: /b\n", []string{"yaml:2: ", "already defined"}},
		{"second document", "state_dir: /a\n---\nstate_dir: /b\n", []string{"more than one document"}},
		{"broken second document", "state_dir: /a\n---\n- {\n", nil},
		{"list", "- a\n", []string{"yaml:1: "}},
		{"no YAML", "state_dir: {\n", nil},
		{"list for a text", "state_dir: [a]\n", []string{"yaml:1: "}},
		{"duration without unit", "stop_timeout: 30\n", []string{"yaml:1: ", `"30"`, "duration such as"}},
		{"no duration", "\nstop_timeout: soon\n", []string{"yaml:2: ", `"soon"`, "duration such as"}},
		{"negative duration", "stop_timeout: -1s\n", []string{"yaml:1: ", "positive duration"}},
		{"no time", "stop_timeout: 0s\n", []string{"yaml:1: ", "positive duration"}},
		{"list for a duration", "stop_timeout: [1s]\n", []string{"yaml:1: ", "duration such as"}},
		{"no size", "limits:\n  default:\n    memory: much\n", []string{"yaml:3: ", `"much"`, "size such as"}},
		{"negative size", "limits: {default: {memory: -1G}}\n", []string{"yaml:1: ", "size such as"}},
		{"size of nothing", "limits: {default: {scratch: 0}}\n", []string{"yaml:1: ", "size such as"}},
		{"size past all bounds", "limits: {ceiling: {memory: 9999999P}}\n", []string{"yaml:1: ", "size such as"}},
		{"size past all machines", "limits: {ceiling: {memory: 100P}}\n", []string{"yaml:1: ", "size such as"}},
		{"mapping for a size", "limits: {ceiling: {memory: {a: 1}}}\n", []string{"yaml:1: ", "size such as"}},
		{"no limit on processes", "limits:\n  ceiling:\n    pids: 0\n", []string{"yaml:3: ", `"0"`, "whole number"}},
		{"part of a process", "limits: {default: {pids: 1.5}}\n", []string{"yaml:1: ", "whole number"}},
		{"policy that there is not", "on_audit_loss: ignore\n", []string{"yaml:1: ", "kill or mark"}},
		{"negative count", "limits: {default: {open_files: -5}}\n", []string{"yaml:1: ", "whole number"}},
		{"too large a count", "limits: {default: {scratch_inodes: 9223372036854775808}}\n", []string{"yaml:1: ", "whole number"}},
		{"no number of processors", "limits: {ceiling: {cpus: .nan}}\n", []string{"yaml:1: ", "positive number"}},
		{"NaN", "limits: {ceiling: {cpus: NaN}}\n", []string{"yaml:1: ", "positive number"}},
		{"all processors", "limits: {ceiling: {cpus: .inf}}\n", []string{"yaml:1: ", "positive number"}},
		{"Inf", "limits: {ceiling: {cpus: Inf}}\n", []string{"yaml:1: ", "positive number"}},
		{"no processor", "limits: {default: {cpus: 0}}\n", []string{"yaml:1: ", "positive number"}},
		{"text for processors", "limits: {default: {cpus: two}}\n", []string{"yaml:1: ", `"two"`, "positive number"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := load(t, test.content)
			if err == nil {
				t.Fatalf("taken as %+v", c)
			}
			for _, part := range append(test.says, "configuration: ", "proctor.yaml:") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func complete(t *testing.T, c Config) *Config {
	t.Helper()
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestDefaults(t *testing.T) {
	c := complete(t, Config{})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		StateDir: "/var/lib/proctor", RunDir: "/run/proctor", Socket: "/run/proctor/proctor.sock", LibDir: filepath.Dir(exe),
		Images: "/var/lib/proctor/images", Cgroup: "proctor", DefaultImages: map[string]string{"python": "python-data", "sh": "shell"},
		Runs: Runs{AtOnce: 128, Queue: 1024}, OnAuditLoss: "kill", StopTimeout: Duration(10 * time.Second),
		Reserve:  Reserve{State: 256 << 20, Run: 16 << 20, Inodes: 1000, Memory: 256 << 20},
		Profiles: "/etc/proctor/profiles", DefaultProfile: "offline",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if c.Namespace() != "proctor" {
		t.Errorf("namespace %s", c.Namespace())
	}
	// The built-in limits are ones that a supervisor takes.
	if _, err := supervisor.New(supervisor.Options{StateDir: t.TempDir(), Limits: c.LimitRange()}); err != nil {
		t.Error(err)
	}
}

func TestDefaultsOfOneLimit(t *testing.T) {
	c := complete(t, Config{Limits: limits.Range{Default: limits.Set{Memory: 1 << 29}, Ceiling: limits.Set{PIDs: 9}}})
	r := c.LimitRange()
	want := box.Limits{
		Timeout: time.Minute, Memory: 1 << 29, CPUs: 1, CPUTime: time.Hour, Processes: 256, ScratchBytes: 512 << 20, ScratchInodes: 65_536, OutputBytes: 1 << 20, OpenFiles: 4096, AuditEvents: 250_000,
	}
	if diff := cmp.Diff(want, r.Default); diff != "" {
		t.Error(diff)
	}
	if r.Ceiling.Processes != 9 || r.Ceiling.Memory != 16<<30 {
		t.Errorf("ceiling %+v", r.Ceiling)
	}
}

func TestRelativeDirectories(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := complete(t, Config{StateDir: "state/", RunDir: "./run", LibDir: "lib", Images: "../images", Socket: "s"})
	for got, want := range map[string]string{
		c.StateDir: "state", c.RunDir: "run", c.LibDir: "lib", c.Images: "../images", c.Socket: "s",
	} {
		if want = filepath.Join(dir, want); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if c := complete(t, Config{StateDir: "state", RunDir: "run"}); c.Socket != filepath.Join(dir, "run/proctor.sock") || c.Images != filepath.Join(dir, "state/images") {
		t.Errorf("derived: %s, %s", c.Socket, c.Images)
	}
}

// Two supervisors share a parent cgroup or a containerd namespace only if they are told to.
func TestInstancesAreApart(t *testing.T) {
	parents, namespaces := map[string]string{}, map[string]string{}
	for _, dir := range []string{"/var/lib/proctor", "/var/lib/proctor2", "/srv/a", "/srv/b", "/srv/a/b"} {
		c := complete(t, Config{StateDir: dir})
		if other, taken := parents[c.Cgroup]; taken {
			t.Errorf("%s and %s share %s", dir, other, c.Cgroup)
		}
		parents[c.Cgroup] = dir
		if c.Namespace() != c.Cgroup || !strings.HasPrefix(c.Cgroup, "proctor") {
			t.Errorf("%s: cgroup %s, namespace %s", dir, c.Cgroup, c.Namespace())
		}
		for _, same := range []string{dir + "/", dir + "/x/.."} {
			if again := complete(t, Config{StateDir: same}); again.Cgroup != c.Cgroup {
				t.Errorf("%s and %s are one directory, with %s and %s", dir, same, c.Cgroup, again.Cgroup)
			}
		}
	}
	for _, parent := range []string{"a/b", "a-b", "a_b", "a.b", "a--b", "a-", "x/a/b", strings.Repeat("a", 200), strings.Repeat("a", 64)} {
		ns := complete(t, Config{Cgroup: parent}).Namespace()
		if other, taken := namespaces[ns]; taken {
			t.Errorf("%s and %s share %s", parent, other, ns)
		}
		namespaces[ns] = parent
		if len(ns) > 76 || !validNamespace.MatchString(ns) {
			t.Errorf("containerd does not take %q, for %q", ns, parent)
		}
	}
}

func TestCgroupNames(t *testing.T) {
	for _, good := range []string{"proctor", "a/b", "system.slice/proctor.service", "0"} {
		complete(t, Config{Cgroup: good})
	}
	for _, bad := range []string{"/", "/proctor", "proctor/", "..", "../x", "a/../b", "a//b", ".", "a/.", "-a", "a b", "a\nb", "ä", "a/\x00"} {
		c := Config{Cgroup: bad}
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), "cgroup ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"state_dir: a\n", "limits: {default: {memory: 1G, cpus: 1e3}}", "stop_timeout: &a 3s\nlimits: {default: {timeout: *a}}",
		"default_images: {python: x}", "- a", "---\n---\n", "limits: {default: {<<: {pids: 3}}}", "stop_timeout: !!str 3s",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &Config{}
		if c.parse("proctor.yaml", data) != nil || c.Complete() != nil {
			return
		}
		r := c.LimitRange()
		for name, l := range map[string]box.Limits{"default": r.Default, "ceiling": r.Ceiling} {
			if l.Timeout <= 0 || l.Memory <= 0 || !(l.CPUs > 0) || l.Processes <= 0 || l.ScratchBytes <= 0 || l.ScratchInodes <= 0 || l.OutputBytes <= 0 || l.OpenFiles <= 0 || l.AuditEvents <= 0 {
				t.Fatalf("%s limits %+v", name, l)
			}
		}
		if c.StopTimeout <= 0 || !filepath.IsAbs(c.StateDir) || !filepath.IsAbs(c.Socket) {
			t.Fatalf("%+v", c)
		}
	})
}
