package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v2"

	"proctor/api"
	"proctor/images"
	"proctor/supervisor/config"
	"proctor/supervisor/host"
)

var serveCommand = &cli.Command{
	Name:  "serve",
	Usage: "be the supervisor (as root)",
	Description: `Starts containerd, attaches the kernel's programs, brings the locked images in, and then
serves runs on the socket until SIGTERM or Ctrl-C. Runs that go on then may finish within
the configured time. Settings come from flags, then --config, then defaults.`,
	OnUsageError: usageError,
	Action:       serveAction,
	Flags: []cli.Flag{
		socketFlag,
		&cli.StringFlag{Name: "config", Usage: "read settings from `FILE`; default " + config.DefaultFile + " where it exists", TakesFile: true},
		&cli.StringFlag{Name: "state-dir", Usage: "keep records, images and containerd's data in `DIR`; default /var/lib/proctor", TakesFile: true},
		&cli.StringFlag{Name: "run-dir", Usage: "keep what lives until the next boot in `DIR`; default /run/proctor", TakesFile: true},
		&cli.StringFlag{Name: "images", Usage: "find the image lock and archives in `DIR`; default STATE_DIR/images", TakesFile: true},
		&cli.StringFlag{Name: "lib-dir", Usage: "find containerd, its shim, runc, proctor-init and proctor-gateway in `DIR`; default: where proctor is", TakesFile: true},
		&cli.StringFlag{Name: "containerd", Usage: "use the containerd that serves at `ADDRESS` instead of a private one", TakesFile: true},
		&cli.StringFlag{Name: "cgroup", Usage: "put runs below the cgroup `PATH`; default: proctor, with a suffix for other state directories"},
		&cli.StringFlag{Name: "log-level", Value: "info", Usage: "`LEVEL`: debug, info, warn or error"},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`FORMAT`: text or json"},
	},
}

func serveConfig(c *cli.Context) (*config.Config, error) {
	cfg, err := config.Load(c.String("config"))
	if err != nil {
		return nil, err
	}
	for name, into := range map[string]*string{
		"state-dir": &cfg.StateDir, "run-dir": &cfg.RunDir, "images": &cfg.Images, "lib-dir": &cfg.LibDir,
		"containerd": &cfg.Containerd, "cgroup": &cfg.Cgroup,
	} {
		if c.IsSet(name) {
			*into = c.String(name)
		}
	}
	socket, given, err := socketPath(c)
	if err != nil {
		return nil, err
	}
	if given {
		cfg.Socket = socket
	}
	return cfg, cfg.Complete()
}

func logger(c *cli.Context) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return nil, usagef("--log-level %q: it is debug, info, warn or error", c.String("log-level"))
	}
	opts := &slog.HandlerOptions{Level: level}
	switch c.String("log-format") {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	default:
		return nil, usagef("--log-format %q: it is text or json", c.String("log-format"))
	}
}

// imageProgress has the log say how far images are.
func imageProgress(log *slog.Logger) images.Progress {
	return images.LineProgress(func(line string) { log.Info("image", "progress", line) })
}

// shutdownTimeout bounds everything after a signal, on top of what runs are granted.
const shutdownTimeout = time.Minute

// answerTimeout bounds how long callers may take to read their answers, or to finish what they
// ask, when all runs have ended.
const answerTimeout = 5 * time.Second

func serveAction(c *cli.Context) (err error) {
	if err := noArgs(c); err != nil {
		return err
	}
	log, err := logger(c)
	if err != nil {
		return err
	}
	cfg, err := serveConfig(c)
	if err != nil {
		return err
	}
	// Before anything that takes its time.
	if err := host.Check(cfg); err != nil {
		return err
	}
	if err := api.Vacant(cfg.Socket); err != nil {
		return err
	}
	// The root of a box's user namespace has to pass through directories made here.
	syscall.Umask(0o022)
	// Whoever reads the log may go; the supervisor stays, with all it has to take down.
	signal.Ignore(syscall.SIGPIPE)
	started := time.Now()
	h, err := host.Start(c.Context, cfg, version, log, imageProgress(log))
	if err != nil && c.Context.Err() != nil {
		return exitWith(codeInterrupted, fmt.Sprintf("interrupted before it was ready: %v", err))
	}
	if err != nil {
		return err
	}
	listener, err := api.Listen(cfg.Socket)
	if err != nil {
		_ = h.Stop(context.WithoutCancel(c.Context))
		return err
	}
	scrape := h.Scrape()
	stopMetrics, err := serveMetrics(cfg.Metrics.Listen, scrape, log)
	if err != nil {
		listener.Close()
		return errors.Join(err, h.Stop(context.WithoutCancel(c.Context)))
	}
	defer stopMetrics()
	// Go ends a process with more threads than this: callers may hold up two for each connection,
	// of which they have a bound.
	debug.SetMaxThreads(30_000)
	server := api.NewServer(api.ServerOptions{
		Supervisor: h.Supervisor, Version: version, Logger: log, Callers: cfg.Callers, Alarms: h.Alarms, Metrics: scrape,
		Containerd: func() string {
			st := h.Daemon.Status()
			switch {
			case h.Daemon.External():
				return "external"
			case st.Serving:
				return fmt.Sprintf("serving, pid %d, restarts %d", st.PID, st.Restarts)
			default:
				return fmt.Sprintf("down, restarts %d, last exit %s", st.Restarts, st.LastExit)
			}
		},
	})
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	manager := notifier{log}
	manager.say(daemon.SdNotifyReady)
	go manager.watch(c.Context, h.Supervisor.Check)
	log.Info("ready", "socket", cfg.Socket, "version", version, "state_dir", cfg.StateDir, "cgroup", cfg.Cgroup, "took", time.Since(started).Round(time.Millisecond).String())

	select {
	case <-c.Context.Done():
		log.Info("stopping: no new runs")
	case err = <-serving:
		log.Error("the socket is gone", "error", err)
	}
	manager.say(daemon.SdNotifyStopping)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), shutdownTimeout)
	defer cancel()
	// Runs first: their callers are to be told how they ended.
	h.Supervisor.Stop(ctx)
	answering, done := context.WithTimeout(ctx, answerTimeout)
	defer done()
	serr := server.Shutdown(answering)
	if herr := h.Stop(ctx); herr != nil {
		log.Error("not everything is taken down", "error", herr)
		return herr
	}
	log.Info("stopped")
	if err == nil && serr != nil {
		log.Debug("calls broken off", "error", serr)
	}
	return err
}

// serveMetrics answers Prometheus at an address, if there is one, until stop is called.
func serveMetrics(address string, scrape http.Handler, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("configuration: metrics: listen: %w: write ADDRESS:PORT of this host, such as 127.0.0.1:9464", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrape)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are served no more", "error", err)
		}
	}()
	log.Info("metrics are served", "address", l.Addr())
	return func() { _ = server.Close(); <-done }, nil
}
