package main_test

import (
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
