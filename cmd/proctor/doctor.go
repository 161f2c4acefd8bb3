package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"proctor/api"
	"proctor/doctor"
	"proctor/supervisor/config"
	"proctor/supervisor/host"
	"proctor/supervisor/notify"
)

var doctorCommand = &cli.Command{
	Name: "doctor", Usage: "check whether this host can do all that Proctor needs",
	Description: `Tries each thing that the supervisor and its runs depend on, and says what works, what
does not, and what to do. It changes nothing. Exit code 1 means that something fails, 125
that something was not tried, for which it needs root.`,
	OnUsageError: usageError,
	Action:       doctorAction,
	// What the supervisor would be started with, so that the same places are looked at.
	Flags: append([]cli.Flag{outputFormat}, serveCommand.Flags...),
}

func doctorAction(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err == nil {
		err = noArgs(c)
	}
	if err != nil {
		return err
	}
	cfg, err := serveConfig(c)
	if err != nil {
		return err
	}
	store := cfg.ContainerdRoot()
	if cfg.Containerd != "" {
		store = "" // the supervisor asks it
	}
	checks := doctor.Run(c.Context, doctor.Options{
		Room:     cfg.Places(store),
		StateDir: cfg.StateDir, RunDir: cfg.RunDir, Socket: cfg.Socket, BinDir: cfg.LibDir, ContainerdAddress: cfg.Containerd,
	})
	checks = append(checks, configurationChecks(cfg)...)
	checks = append(checks, sinkChecks(c.Context, cfg.Socket)...)
	if asJSON {
		err = printJSON(checks)
	} else {
		err = printChecks(checks)
	}
	if err != nil {
		return err
	}
	return checked(checks, asJSON)
}

// checked is what the checks come to: all is there only where all were made.
func checked(checks []doctor.Check, asJSON bool) error {
	failed, untried := doctor.Count(checks, doctor.Fail), doctor.Count(checks, doctor.Untried)
	switch {
	case failed > 0 && untried > 0:
		return exitWith(1, fmt.Sprintf("of %d checks, %d fail and %d were not tried: run `sudo proctor doctor`", len(checks), failed, untried))
	case failed > 0:
		return exitWith(1, fmt.Sprintf("%d of %d checks fail", failed, len(checks)))
	case untried > 0:
		return fmt.Errorf("%d of %d checks were not tried: run `sudo proctor doctor`", untried, len(checks))
	case asJSON:
		return nil
	}
	_, err := fmt.Printf("\nall that Proctor needs is there\n")
	return err
}

// configurationChecks are of whether the supervisor would be started with it. Sinks' secrets are for
// root to read.
func configurationChecks(cfg *config.Config) []doctor.Check {
	const name = "configuration"
	var checks []doctor.Check
	if os.Geteuid() != 0 {
		checks = append(checks, doctor.NeedsRoot(name))
	} else {
		check := doctor.Check{Name: name, Status: doctor.OK, Detail: "the supervisor takes it, with the secrets it names"}
		if err := host.Check(cfg); err != nil {
			check.Status, check.Detail = doctor.Fail, err.Error()
			check.Fix = "mend it as it says: `proctor serve` refuses it"
		}
		checks = append(checks, check)
	}
	if cfg.Alerts.Untold() {
		checks = append(checks, doctor.Check{Name: "routes", Status: doctor.Warn, Detail: "incidents that fit no route are told to nobody", Fix: notify.UntoldFix})
	}
	return checks
}

// sinkChecks are of where a supervisor that is running tells of incidents. Where none is, or who
// calls may not ask it, there are none.
func sinkChecks(ctx context.Context, socket string) (checks []doctor.Check) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	a, err := (&api.Client{Socket: socket}).Alerts(ctx)
	if err != nil {
		return nil
	}
	for _, h := range a.Sinks {
		check := doctor.Check{Name: "sink " + h.Sink, Status: doctor.OK, Detail: fmt.Sprintf("works, %d incidents wait for it", h.Waiting)}
		switch {
		case h.Refused:
			check.Status, check.Detail = doctor.Fail, "refuses: "+h.Error
			check.Fix = "mend its token, URL or channel, then `proctor alerts test --sink " + h.Sink + "`"
		case !h.Failing.IsZero():
			check.Status, check.Detail = doctor.Warn, fmt.Sprintf("does not work since %s: %s; %d incidents wait for it", h.Failing.Local().Format(time.DateTime), h.Error, h.Waiting)
		}
		checks = append(checks, check)
	}
	return checks
}

func printChecks(checks []doctor.Check) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, check := range checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", check.Status, check.Name, printable(check.Detail))
		if check.Fix != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", printable(check.Fix))
		}
	}
	return w.Flush()
}
