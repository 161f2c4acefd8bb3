package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A notifier tells the service manager how the supervisor is doing, where one wants to know
// (sd_notify(3)). Without one it does nothing.
type notifier struct{ log *slog.Logger }

func (n notifier) say(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("the service manager is not told", "state", state, "error", err)
	}
}

// watch shows signs of life until ctx ends, as often as the service manager wants them and a
// little more, while alive gives no error: a manager that hears nothing starts the service anew.
func (n notifier) watch(ctx context.Context, alive func() error) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("the service manager's watchdog is not served", "error", err)
	}
	if within <= 0 {
		return
	}
	tick := time.NewTicker(within / 3)
	defer tick.Stop()
	for {
		if err := alive(); err != nil {
			n.log.Error("no sign of life for the service manager", "error", err)
		} else {
			n.say(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
