package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOptionsAreRefused(t *testing.T) {
	good := Options{Binary: "/opt/bin/containerd", Root: "/var/lib/p/containerd", State: "/run/p/containerd"}
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"no binary", func(o *Options) { o.Binary = "" }, []string{"binary"}},
		{"no root", func(o *Options) { o.Root = "" }, []string{"root directory"}},
		{"no state", func(o *Options) { o.State = "" }, []string{"state directory"}},
		{"one directory for both", func(o *Options) { o.State = o.Root }, []string{"/var/lib/p/containerd", "choose two"}},
		{"quote in a path", func(o *Options) { o.Root = "/var/it's" }, []string{"it's", "not allowed"}},
		{"newline in a path", func(o *Options) { o.Root = "/var/a\nb" }, []string{`a\nb`, "not allowed"}},
		{"long state", func(o *Options) { o.State = "/run/" + strings.Repeat("x", 36) }, []string{"/run/xxx", "41 bytes", "at most 40", "choose a shorter"}},
		{"negative timeout", func(o *Options) { o.StopTimeout = -time.Second }, []string{"positive"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := o.withDefaults()
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not mention %q", err, want)
				}
			}
		})
	}
	longest := good
	longest.State = "/run/" + strings.Repeat("x", 35)
	if _, err := longest.withDefaults(); err != nil {
		t.Errorf("40 bytes of state directory: %v", err)
	}
}

func TestMissingBinaryIsNamed(t *testing.T) {
	dir := t.TempDir()
	o := Options{Binary: filepath.Join(dir, "containerd")}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		path := filepath.Join(dir, name)
		err := o.checkBinaries()
		if err == nil || !strings.Contains(err.Error(), path+":") || !strings.Contains(err.Error(), "make build") {
			t.Fatalf("without %s: %v", name, err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.checkBinaries(); err == nil || !strings.Contains(err.Error(), "not an executable") {
			t.Fatalf("%s without its x bit: %v", name, err)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.checkBinaries(); err != nil {
		t.Fatal(err)
	}
}

func TestConfigHasNoNetworkListener(t *testing.T) {
	o, err := Options{
		Binary: "/b/containerd", Root: "/r", State: "/s",
		Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	data, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"root = '/r'", "state = '/s'", "address = '/s/containerd.sock'", "socket_dir = '/s/s'", "level = 'warn'",
		"'io.containerd.server.v1.grpc-tcp'", "'io.containerd.server.v1.debug'", "'io.containerd.server.v1.metrics'",
		"'io.containerd.grpc.v1.cri'", "'io.containerd.nri.v1.nri'",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("configuration lacks %s:\n%s", want, data)
		}
	}
}
