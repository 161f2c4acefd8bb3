package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"proctor/audit"
)

var outputFormat = &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "text", Usage: "print as `FORMAT`: text or json"}

var auditCommand = &cli.Command{
	Name:         "audit",
	Usage:        "read what runs did",
	OnUsageError: usageError,
	Subcommands: []*cli.Command{
		{
			Name: "list", Usage: "list the runs, newest first",
			OnUsageError: usageError, Action: auditList,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 50, Usage: "at most `NUMBER` runs"}},
		},
		{
			Name: "show", Usage: "show one run: what was asked, what it did, how it ended", ArgsUsage: "RUN",
			OnUsageError: usageError, Action: auditShow,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.BoolFlag{Name: "code", Usage: "print the code, verbatim, and nothing else"}},
		},
		{
			Name: "tail", Usage: "follow what all runs do",
			OnUsageError: usageError, Action: auditTail,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Value: true, Usage: "go on until interrupted (it always does)"}},
		},
	},
	Action: func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return usagef("command %q is not known: see `proctor audit --help`", name)
		}
		return cli.ShowSubcommandHelp(c)
	},
}

// jsonWanted reads --output.
func jsonWanted(c *cli.Context) (bool, error) {
	switch f := c.String("output"); f {
	case "json":
		return true, nil
	case "text":
		return false, nil
	default:
		return false, usagef("--output %q: it is text or json", f)
	}
}

func auditList(c *cli.Context) error {
	cl, asJSON, err := query(c)
	if err != nil {
		return err
	}
	if n := c.Int("limit"); n < 1 {
		return usagef("--limit %d: write a positive number", n)
	}
	runs, err := cl.Runs(c.Context, c.Int("limit"))
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(runs)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTARTED\tSTATUS\tCODE\tIMAGE\tPROGRAM\tEVENTS\tBLOCKED")
	for _, r := range runs {
		started, program, image := "-", "-", "-"
		if q := r.Request; q != nil {
			started, program, image = q.Time.Format(time.DateTime), printable(q.Code.Name), q.Image.Name
		}
		status, code, events, blocked := "running", "-", "-", "-"
		switch v := r.Verdict; {
		case v != nil:
			status, code, events = string(v.Status), fmt.Sprint(v.ExitCode), fmt.Sprint(v.Audit.Events)
			n := v.Egress.BlockedMore
			for _, d := range v.Egress.Blocked {
				n += d.Count
			}
			blocked = fmt.Sprint(n)
		case !r.Active:
			status = "unknown"
		}
		fmt.Fprintln(w, strings.Join([]string{r.Run, started, status, code, image, program, events, blocked}, "\t"))
	}
	return w.Flush()
}

func auditShow(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	id, err := one(c, "name one run: see `proctor audit list`")
	if err != nil {
		return err
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	if c.Bool("code") {
		return cl.Code(c.Context, id, programOutput(os.Stdout))
	}
	if asJSON {
		return cl.Record(c.Context, id, os.Stdout)
	}
	info, err := cl.Show(c.Context, id)
	if err != nil {
		return err
	}
	if q := info.Request; q != nil {
		fmt.Printf("run      %s\n", q.Run)
		fmt.Printf("started  %s by uid %d%s\n", q.Time.Format(time.RFC3339), q.Caller.UID, labels(q))
		fmt.Printf("image    %s %s\n", q.Image.Name, q.Image.Digest)
		fmt.Printf("program  %s, %d bytes, sha256 %s\n", printable(q.Code.Name), q.Code.Bytes, q.Code.SHA256)
		fmt.Printf("profile  %s\n", printable(q.Profile))
		for _, rule := range q.Egress {
			fmt.Printf("granted  %s\n", printable(rule))
		}
		for _, in := range q.Inputs {
			fmt.Printf("input    %s, %d bytes, by %s\n", in.Name.Printable(), in.Bytes, in.How)
		}
		fmt.Println()
	}
	err = cl.Events(c.Context, id, func(e audit.Event) error {
		_, err := fmt.Println(line(&e, false))
		return err
	})
	if err != nil {
		return err
	}
	if v := info.Verdict; v != nil {
		fmt.Printf("\nverdict  %s, exit code %d: %s\n", v.Status, v.ExitCode, oneLine(v.Reason))
		for _, in := range v.Inputs {
			fmt.Println(oneLine(inputLine(in)))
		}
		for _, d := range v.Egress.Blocked {
			fmt.Printf("blocked  %s, %d times: %s\n", target(d), d.Count, oneLine(d.Rule))
		}
		if n := v.Egress.BlockedMore; n > 0 {
			fmt.Printf("blocked  %d times elsewhere\n", n)
		}
		for _, o := range v.Outputs {
			fmt.Printf("output   %s, %d bytes, sha256 %s\n", o.Name.Printable(), o.Bytes, o.SHA256)
		}
		complete := "complete"
		if !v.Audit.Complete {
			complete = "not complete"
		}
		fmt.Printf("record   %s: events=%d lost=%d %s\n", complete, v.Audit.Events, v.Audit.Lost, v.Audit.Seal)
	}
	return nil
}

func auditTail(c *cli.Context) error {
	cl, asJSON, err := query(c)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	started := func() {
		if !asJSON && isTerminal(os.Stdout) {
			fmt.Fprintln(os.Stderr, "proctor: following all runs, Ctrl-C ends it")
		}
	}
	err = cl.Tail(c.Context, started, func(e audit.Event) error {
		if asJSON {
			return enc.Encode(e)
		}
		_, err := fmt.Println(line(&e, true))
		return err
	})
	if c.Context.Err() != nil {
		return nil // interrupted, as it should be
	}
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the supervisor went away")
	}
	return err
}

// inputLine is what an input was, and whether it stayed so.
func inputLine(in audit.InputFile) string {
	s := "input    " + in.Name.Printable()
	if in.SHA256 != "" {
		s += ", sha256 " + in.SHA256
	}
	if in.Error != "" {
		s += ", no hash: " + in.Error
	}
	if in.Changed {
		s += ", CHANGED while the run went on"
	}
	return s
}

// labels is what the caller says of whose work it is.
func labels(q *audit.Request) string {
	s := ""
	if q.Agent != "" {
		s += ", for the agent " + quoteArg(q.Agent)
	}
	if q.Conversation != "" {
		s += ", in the conversation " + quoteArg(q.Conversation)
	}
	return s
}
