package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"text/template"

	"github.com/google/renameio/v2"
)

// What is left after these are disabled is what running locally imported images
// needs. Names that the binary doesn't have (it may be built without CRI) are ignored
// by containerd.
var disabledPlugins = []string{
	"io.containerd.grpc.v1.cri",
	"io.containerd.cri.v1.images",
	"io.containerd.cri.v1.runtime",
	"io.containerd.podsandbox.controller.v1.podsandbox",
	"io.containerd.nri.v1.nri", // would run plugins found in /opt/nri

	"io.containerd.image-verifier.v1.bindir", // would run programs found in /opt/containerd
	"io.containerd.internal.v1.opt",          // would put /opt/containerd into PATH
	"io.containerd.monitor.container.v1.restart",

	"io.containerd.snapshotter.v1.blockfile",
	"io.containerd.snapshotter.v1.btrfs",
	"io.containerd.snapshotter.v1.devmapper",
	"io.containerd.snapshotter.v1.erofs",
	"io.containerd.snapshotter.v1.native",
	"io.containerd.snapshotter.v1.zfs",
	"io.containerd.differ.v1.erofs",
	"io.containerd.mount-handler.v1.erofs",

	"io.containerd.internal.v1.tracing",
	"io.containerd.tracing.processor.v1.otlp",
	"io.containerd.ttrpc.v1.otelttrpc",
	"io.containerd.metrics.v1.grpc-otel",
	"io.containerd.metrics.v1.grpc-prometheus",
	"io.containerd.monitor.task.v1.cgroups", // only collects metrics that nothing reads
	"io.containerd.http.v1.pprof",
	"io.containerd.server.v1.debug",
	"io.containerd.server.v1.metrics",
	"io.containerd.server.v1.grpc-tcp",
}

// Without any one of these a run can't be made; containerd then doesn't start, and
// says which.
var requiredPlugins = []string{
	"io.containerd.metadata.v1.bolt",
	"io.containerd.snapshotter.v1.overlayfs",
	"io.containerd.runtime.v2.task",
	"io.containerd.grpc.v1.tasks",
	"io.containerd.grpc.v1.transfer",
	"io.containerd.grpc.v1.leases",
	"io.containerd.grpc.v1.healthcheck",
	"io.containerd.grpc.v1.version",
	"io.containerd.server.v1.grpc",
	"io.containerd.server.v1.ttrpc",
}

var configTemplate = template.Must(template.New("config").Parse(`# Written at every start of proctor; changes are lost.
version = 4
root = '{{.Root}}'
state = '{{.State}}'
temp = '{{.Temp}}'
imports = []
disabled_plugins = [{{range .Disabled}}
  '{{.}}',{{end}}
]
required_plugins = [{{range .Required}}
  '{{.}}',{{end}}
]

[debug]
  level = '{{.LogLevel}}'
  format = 'json'

[plugins.'io.containerd.server.v1.grpc']
  address = '{{.Socket}}'
  uid = 0
  gid = 0

[plugins.'io.containerd.server.v1.ttrpc']
  address = '{{.TTRPC}}'
  uid = 0
  gid = 0

[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.ShimSockets}}'

[timeouts]
  # A database held by somebody else is an error to report, not a reason to hang.
  'io.containerd.timeout.bolt.open' = '10s'
`))

func (o Options) config() ([]byte, error) {
	level := "warn"
	if o.Logger.Enabled(context.Background(), slog.LevelInfo) {
		level = "info"
	}
	var b bytes.Buffer
	err := configTemplate.Execute(&b, map[string]any{
		"Root": o.Root, "State": o.State, "Temp": o.tempDir(),
		"Disabled": disabledPlugins, "Required": requiredPlugins,
		"LogLevel": level,
		"Socket":   o.socket(), "TTRPC": o.ttrpcSocket(), "ShimSockets": o.shimSocketDir(),
	})
	return b.Bytes(), err
}

func (o Options) writeConfig() error {
	data, err := o.config()
	if err != nil {
		return err
	}
	// The same as before needs no room: a disk may be full.
	if old, err := os.ReadFile(o.configFile()); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return renameio.WriteFile(o.configFile(), data, 0o600)
}
