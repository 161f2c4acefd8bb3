package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proctor/testenv"
)

// Doctor says of a configuration what serve would, before anything is started.
func TestDoctorReadsSecrets(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	key := filepath.Join(dir, "key")
	file := filepath.Join(dir, "proctor.yaml")
	text := "state_dir: " + dir + "/state\nrun_dir: " + dir + "/run\nalerts:\n  sinks:\n    soc: {type: webhook, url: 'http://127.0.0.1:1/', secret_file: " + key + "}\n  routes: [{severity: critical, sinks: [soc]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		mode          os.FileMode
		doctor, serve string
	}{
		{0, "alerts.sinks.soc.secret_file: " + key + ": there is no such file", "there is no such file"},
		{0o644, "has mode 0644", "has mode 0644"},
		{0o600, "the supervisor takes it", ""},
	} {
		if test.mode != 0 {
			if err := os.WriteFile(key, []byte("0123456789abcdef\n"), test.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(key, test.mode); err != nil {
				t.Fatal(err)
			}
		}
		out, _ := exec.CommandContext(t.Context(), filepath.Join(s.bin, "proctor"), "doctor", "--config", file).CombinedOutput()
		if !strings.Contains(string(out), test.doctor) || !strings.Contains(string(out), "incidents that fit no route are told to nobody") {
			t.Errorf("mode %o: doctor says:\n%s", test.mode, out)
		}
		if test.serve == "" {
			continue
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(s.bin, "proctor"), "serve", "--config", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.serve) {
			t.Errorf("mode %o: serve: %v, %s", test.mode, err, out)
		}
		if _, err := os.Stat(dir + "/state"); !os.IsNotExist(err) {
			t.Errorf("mode %o: serve began before it looked: %v", test.mode, err)
		}
	}
}

// What only root can try is counted, and all is not said to be there.
func TestDoctorWithoutRoot(t *testing.T) {
	dir := testenv.Dir(t)
	self, err := os.ReadFile("/proc/self/exe") // proctor where it is called so
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "proctor")
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "proctor-init", "proctor-gateway"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho 1.0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"doctor", "--lib-dir", dir, "--state-dir", dir, "--run-dir", dir, "--socket", dir + "/none"}
	call := func(args ...string) result {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Env = cleanEnv()
		if os.Geteuid() == 0 {
			cmd = asNobody(t, cmd, bin)
		}
		return finish(t, cmd, "")
	}
	r := call(flags...)
	counts := map[string]int{}
	for line := range strings.Lines(r.stdout) {
		if status, _, _ := strings.Cut(line, " "); status != "" {
			counts[status]++
			counts["all"]++
		}
	}
	code, want := 125, fmt.Sprintf("%d of %d checks were not tried", counts["untried"], counts["all"])
	if n := counts["fail"]; n > 0 { // on a host that can't do all
		code, want = 1, fmt.Sprintf("of %d checks, %d fail and %d were not tried", counts["all"], n, counts["untried"])
	}
	if r.code != code || r.stderr != "proctor: "+want+": run `sudo proctor doctor`\n" || counts["untried"] < 20 {
		t.Errorf("exit code %d, want %d; stderr %swant %q of\n%s", r.code, code, r.stderr, want, r.stdout)
	}
	if r := call(append(flags, "-o", "json")...); r.code != code || !strings.Contains(r.stdout, `"untried"`) {
		t.Errorf("as JSON: exit code %d, want %d:\n%s%s", r.code, code, r.stdout, r.stderr)
	}
}
