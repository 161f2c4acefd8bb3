package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"proctor/supervisor/room"
)

var statusCommand = &cli.Command{
	Name: "status", Usage: "say how the supervisor is doing",
	Description: `Says which runs go on and wait, and what was counted since the supervisor started: of runs
those that ended, of files opens (files_read and files_written), and of events all that have
a number, also those that were lost. docs/sight.md lists the counters.`,
	OnUsageError: usageError,
	Flags:        []cli.Flag{socketFlag, outputFormat},
	Action: func(c *cli.Context) error {
		cl, asJSON, err := query(c)
		if err != nil {
			return err
		}
		st, err := cl.Status(c.Context)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(st)
		}
		for _, r := range st.Room {
			if r.Problem != "" {
				fmt.Printf("NO NEW RUNS: %s: %s\n", printable(r.Problem), printable(r.Fix))
			}
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "version\t%s\n", st.Version)
		fmt.Fprintf(w, "running\tsince %s, pid %d\n", st.Since.Format(time.DateTime), st.PID)
		fmt.Fprintf(w, "containerd\t%s\n", st.Containerd)
		for _, r := range st.Room {
			fmt.Fprintf(w, "%s\t%s, %s\n", r.Name, printable(r.Dir), free(r))
		}
		fmt.Fprintf(w, "images\t%s\n", strings.Join(st.Images, ", "))
		fmt.Fprintf(w, "going on\t%d\n", len(st.Active))
		for _, r := range st.Active {
			fmt.Fprintf(w, "\t%s\n", r)
		}
		if len(st.Waiting) > 0 {
			fmt.Fprintf(w, "waiting\t%d\n", len(st.Waiting))
			for _, r := range st.Waiting {
				fmt.Fprintf(w, "\t%s\n", r)
			}
		}
		if n := st.Counters["goroutines"]; n > 0 {
			fmt.Fprintf(w, "goroutines\t%d\n", n)
			delete(st.Counters, "goroutines") // all others are counted from the start on
		}
		if len(st.Counters) > 0 {
			fmt.Fprintf(w, "\nsince it started, and of runs those that ended:\n")
		}
		// What is there to see, not what never happened.
		for _, name := range slices.Sorted(maps.Keys(st.Counters)) {
			if n := st.Counters[name]; n > 0 {
				fmt.Fprintf(w, "%s\t%d\n", name, n)
			}
		}
		return w.Flush()
	},
}

// free says how much room there is.
func free(r room.State) string {
	text := room.Size(r.Free) + " free"
	if r.Inodes > 0 {
		text += fmt.Sprintf(" and %d inodes", r.FreeInodes)
	}
	return text
}
