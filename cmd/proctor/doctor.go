package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"proctor/doctor"
)

var doctorCommand = &cli.Command{
	Name: "doctor", Usage: "check whether this host can do all that Proctor needs",
	Description: `Tries each thing that the supervisor and its runs depend on, and says what works, what
does not, and what to do. It changes nothing. Exit code 1 means that something fails.`,
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
	checks := doctor.Run(c.Context, doctor.Options{
		StateDir: cfg.StateDir, RunDir: cfg.RunDir, Socket: cfg.Socket, BinDir: cfg.LibDir, ContainerdAddress: cfg.Containerd,
	})
	if asJSON {
		err = printJSON(checks)
	} else {
		err = printChecks(checks)
	}
	if err == nil && doctor.Worst(checks) == doctor.Fail {
		err = exitWith(1, "")
	}
	return err
}

func printChecks(checks []doctor.Check) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	failed := 0
	for _, check := range checks {
		if check.Status == doctor.Fail {
			failed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", check.Status, check.Name, printable(check.Detail))
		if check.Fix != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", printable(check.Fix))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return exitWith(1, fmt.Sprintf("%d of %d checks fail", failed, len(checks)))
	}
	fmt.Printf("\nall that Proctor needs is there\n")
	return nil
}
