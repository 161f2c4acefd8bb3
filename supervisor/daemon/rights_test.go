package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proctor/supervisor/daemon"
	"proctor/testenv"
)

func TestStartNeedsRoot(t *testing.T) {
	if !testenv.Unprivileged(t) {
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, err := daemon.Start(t.Context(), daemon.Options{Binary: filepath.Join(dir, "containerd"), Root: "/tmp/r", State: "/tmp/s"})
	if err == nil || !strings.Contains(err.Error(), "sudo") {
		t.Fatalf("got %v", err)
	}
}
