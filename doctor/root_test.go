package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proctor/doctor"
	"proctor/testenv"
)

// A host that runs the root tests is a healthy one, and stays as it was.
func TestHealthyHost(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	dir := testenv.Dir(t)
	state, run := filepath.Join(dir, "state"), filepath.Join(dir, "run")
	checks := doctor.Run(t.Context(), doctor.Options{
		StateDir: state, RunDir: run, Socket: filepath.Join(run, "proctor.sock"), BinDir: testenv.BinDir(t),
	})
	for _, c := range checks {
		t.Logf("%-4s %s: %s [%s]", c.Status, c.Name, c.Detail, c.Fix)
		if c.Status == doctor.Fail {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left in the directory: %v %v", entries, err)
	}
}

func TestExternalContainerd(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	d := testenv.Containerd(t)
	for address, want := range map[string]doctor.Status{d.Address(): doctor.OK, d.Address() + "x": doctor.Fail} {
		var found bool
		for _, c := range doctor.Run(t.Context(), doctor.Options{ContainerdAddress: address}) {
			if strings.Contains(c.Name, "external") {
				found = true
				if c.Status != want {
					t.Errorf("%s: %+v", address, c)
				}
			}
		}
		if !found {
			t.Errorf("%s is not checked", address)
		}
	}
}
