package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"proctor/audit"
	"proctor/testenv"
)

func TestExternalContainerd(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	d := testenv.Containerd(t)
	s := newSupervisor(t, "--containerd", d.Address())
	if st := s.status(t); st.Containerd != "external" {
		t.Errorf("status says of containerd: %s", st.Containerd)
	}
	if v := s.verdict(t, "sh", "echo hi"); v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "hi\n" {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	eventually(t, 20*time.Second, s.empty)

	victim := s.background(t, busy)
	s.kill()
	eventually(t, 3*time.Second, func() error { return s.populated(victim.run) })
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	if v := s.keptVerdict(t, victim.run); v.Status != audit.StatusInterrupted {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	client, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	list, err := client.NamespaceService().List(t.Context())
	if err != nil {
		t.Fatalf("the operator's containerd: %v", err)
	}
	for _, name := range list {
		ctx := namespaces.WithNamespace(t.Context(), name)
		containers, err := client.Containers(ctx)
		if err != nil || len(containers) > 0 {
			t.Errorf("containers left in namespace %s: %d, %v", name, len(containers), err)
		}
		leases, err := client.LeasesService().List(ctx)
		if err != nil || len(leases) > 0 {
			t.Errorf("leases left in namespace %s: %v, %v", name, leases, err)
		}
	}
}

// A supervisor that is stopped while it starts takes down what it had put up.
func TestInterruptedStart(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	for _, after := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		dir := testenv.Dir(t)
		s := describe(t, dir, pickImages(t, dir, "python-data")) // which takes longer than that
		args := []string{"serve", "--state-dir", dir + "/state", "--run-dir", dir + "/run", "--images", s.images, "--cgroup", testenv.Cgroup(t)}
		cmd := s.command(t.Context(), args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		// In the first milliseconds the signal finds a program that does not handle it yet.
		if code != 130 && code != -1 || code == 130 && !strings.Contains(stderr.String(), "proctor: interrupted before it was ready: ") {
			t.Errorf("after %s: exit code %d, stderr %s", after, code, &stderr)
		}
		for _, m := range mountsBelow(dir) {
			t.Errorf("after %s: left behind: mount %s", after, m)
		}
		if left := processesWith(dir); len(left) > 0 {
			t.Errorf("after %s: left behind: processes %v", after, left)
		}
	}
}

// What a supervisor does not start with. Nothing may be left of the try.
func TestServeRefusals(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	group := testenv.Cgroup(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("file", "x")
	images := pickImages(t, dir, "shell")
	before := tree(dir)
	long := filepath.Join(dir, strings.Repeat("l", 120))
	for _, test := range []struct {
		name string
		args []string
		code int
		want string // of the last line
	}{
		{"an argument", []string{"x"}, 2, "proctor serve takes no arguments, got \"x\": see `proctor serve --help`"},
		{"a log level", []string{"--log-level", "loud"}, 2, `--log-level "loud": it is debug, info, warn or error`},
		{"a log format", []string{"--log-format", "xml"}, 2, `--log-format "xml": it is text or json`},
		{"no such configuration", []string{"--config", dir + "/none"}, 125, dir + "/none: no such file"},
		{"an unknown key", []string{"--config", write("bad.yaml", "statedir: /x\n")}, 125, "statedir"},
		{"a bad size", []string{"--config", write("size.yaml", "limits: {default: {memory: -1}}\n")}, 125, "write a positive size such as 512M or 2G"},
		{"a default above the ceiling", []string{"--config", write("ceiling.yaml", "limits: {default: {memory: 2G}, ceiling: {memory: 1G}}\n")}, 125, "default limits: memory 2 GiB: the ceiling is 1 GiB"},
		{"a resolver's name", []string{"--config", write("resolver.yaml", "network: {resolvers: [dns.example]}\n")}, 125, `configuration: network: resolver "dns.example": write ADDRESS`},
		{"no authorities", []string{"--config", write("noca.yaml", "network: {ca_file: /none.pem}\n")}, 125, "configuration: network: ca_file /none.pem: no such file"},
		{"authorities that are none", []string{"--config", write("ca.yaml", "network: {ca_file: "+file+"}\n")}, 125, "no certificate is in it: give a file in PEM"},
		{"no default profile", []string{"--config", write("profile.yaml", "profiles: "+dir+"\ndefault_profile: none\n")}, 125, `configuration: default_profile: no profile "none" in ` + dir},
		{"a cgroup that is not below the root", []string{"--cgroup", "../x"}, 125, `cgroup "../x": write a relative path of plain names, such as proctor`},
		{"no images", []string{"--images", dir + "/none"}, 125, "none"},
		{"no binaries", []string{"--lib-dir", dir}, 125, "containerd"},
		{"no external containerd", []string{"--containerd", dir + "/none"}, 125, "no containerd at " + dir + "/none"},
		{"a socket path that is too long", []string{"--socket", long}, 125, "at most 107 bytes"},
		{"a file in the socket's place", []string{"--socket", file}, 125, "socket " + file + ": something else is there: remove it, or choose another with --socket"},
		{"a socket that is served", []string{"--socket", s.socket}, 125, "socket " + s.socket + ": another supervisor serves it: stop that one, or choose another with --socket"},
		{"a state directory in use", []string{"--state-dir", s.dir + "/state"}, 125, s.dir},
		{"a run directory in use", []string{"--run-dir", s.dir + "/run"}, 125, s.dir},
		{"a file as state directory", []string{"--state-dir", file}, 125, file},
	} {
		t.Run(test.name, func(t *testing.T) {
			state, run := testenv.Dir(t), testenv.Dir(t)
			args := []string{"serve", "--state-dir", state, "--run-dir", run, "--cgroup", group, "--images", images, "--socket", run + "/s"}
			cmd := s.command(t.Context(), append(args, test.args...)...)
			r := finish(t, cmd, "")
			lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
			last := lines[len(lines)-1]
			if r.code != test.code || !strings.HasPrefix(last, "proctor: ") || !strings.Contains(last, test.want) {
				t.Errorf("exit code %d, want %d; stderr ends %q, want %q", r.code, test.code, last, test.want)
			}
			for _, l := range lines[:len(lines)-1] {
				if !strings.HasPrefix(l, "time=") {
					t.Errorf("a line that is not of the log: %q", l)
				}
			}
		})
	}
	after := slices.DeleteFunc(tree(dir), func(p string) bool { return strings.HasSuffix(p, ".yaml") })
	if before = slices.DeleteFunc(before, func(p string) bool { return strings.HasSuffix(p, ".yaml") }); !slices.Equal(before, after) {
		t.Errorf("before: %q\nafter: %q", before, after)
	}
	if v := s.verdict(t, "sh", "echo fine"); v.Status != audit.StatusOK {
		t.Errorf("a run of the supervisor that was there: %s: %s", v.Status, v.Reason)
	}
}
