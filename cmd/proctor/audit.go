package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"proctor/api"
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
		auditVerifyCommand,
		{
			Name: "tail", Usage: "follow what all runs do",
			OnUsageError: usageError, Action: auditTail,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Value: true, Usage: "go on until interrupted: it always does"}},
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
	fmt.Fprintln(w, "RUN\tSTARTED\tUID\tSTATUS\tCODE\tIMAGE\tPROGRAM\tEVENTS\tRECORD\tBLOCKED")
	for _, r := range runs {
		started, uid, program, image := "-", "-", "-", "-"
		if q := r.Request; q != nil {
			started, uid, program, image = q.Time.Format(time.DateTime), fmt.Sprint(q.Caller.UID), quote(audit.Text(q.Code.Name)), q.Image.Name
		}
		status, code, events, record, blocked := "running", "-", "-", "-", "-"
		switch v := r.Verdict; {
		case v != nil:
			status, code, events, record = string(v.Status), fmt.Sprint(v.ExitCode), fmt.Sprint(v.Audit.Events), completeness(v)
			n := v.Egress.BlockedMore
			for _, d := range v.Egress.Blocked {
				n += d.Count
			}
			blocked = fmt.Sprint(n)
		case !r.Active:
			status = "unknown"
		}
		fmt.Fprintln(w, strings.Join([]string{r.Run, started, uid, status, code, image, program, events, record, blocked}, "\t"))
	}
	return w.Flush()
}

// completeness is how much of a record is missing.
func completeness(v *audit.Verdict) string {
	switch {
	case v.Audit.Complete:
		return "complete"
	case v.Audit.Lost > 0:
		return fmt.Sprintf("%d lost", v.Audit.Lost)
	default:
		return "not complete"
	}
}

func auditShow(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	id, err := oneRun(c)
	if err != nil {
		return err
	}
	if c.Bool("code") && asJSON {
		return usagef("--code with --output json: the code is printed as it is: leave one of them out")
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	info, err := cl.Show(c.Context, id)
	if err != nil {
		return err
	}
	if c.Bool("code") {
		return showCode(c.Context, cl, info)
	}
	if q := info.Request; q != nil && !asJSON {
		showRequest(q)
	}
	record, err := cl.Open(c.Context, id, "events.jsonl")
	if err != nil {
		return err
	}
	defer record.Close()
	from, show := io.Reader(record), func(e *audit.Event) error {
		_, err := fmt.Println(line(e, false))
		return err
	}
	if asJSON {
		from, show = io.TeeReader(record, programOutput(os.Stdout)), func(*audit.Event) error { return nil }
	}
	got, err := audit.ReadRecord(from, show)
	if err != nil {
		return fmt.Errorf("run %s: record: %w", id, err)
	}
	v := info.Verdict
	if v != nil {
		got.Agree(v)
	}
	if !asJSON {
		showVerdict(info, len(got.Problems) == 0)
	}
	if len(got.Problems) > 0 {
		return exitWith(1, fmt.Sprintf("run %s: the record is not what was written: %s: `proctor audit verify %s` says all that is wrong", id, got.Problems[0], id))
	}
	return nil
}

// oneRun takes the argument that names a run.
func oneRun(c *cli.Context) (string, error) {
	const name = "name one run: see `proctor audit list`"
	id, err := one(c, name)
	if err == nil && id == "" {
		err = usagef(name)
	}
	return id, err
}

// showCode prints the code and says so where it is not what ran.
func showCode(ctx context.Context, cl *api.Client, info *api.RunInfo) error {
	sum := sha256.New()
	if err := cl.Code(ctx, info.Run, io.MultiWriter(programOutput(os.Stdout), sum)); err != nil {
		return err
	}
	if q, is := info.Request, hex.EncodeToString(sum.Sum(nil)); q != nil && is != q.Code.SHA256 {
		return exitWith(1, fmt.Sprintf("run %s: this is not the code that ran: it has sha256 %s, and had %s", info.Run, is, q.Code.SHA256))
	}
	return nil
}

func showRequest(q *audit.Request) {
	fmt.Printf("run      %s\n", q.Run)
	fmt.Printf("started  %s by uid %d%s\n", q.Time.Format(time.RFC3339), q.Caller.UID, labels(q))
	fmt.Printf("image    %s %s\n", q.Image.Name, q.Image.Digest)
	fmt.Printf("program  %s, %d bytes, sha256 %s\n", quote(audit.Text(q.Code.Name)), q.Code.Bytes, q.Code.SHA256)
	fmt.Print("command ")
	for _, arg := range q.Argv {
		fmt.Print(" ", quote(arg))
	}
	fmt.Println()
	if limits, ok := q.Limits.(map[string]any); ok {
		fmt.Print("limits  ")
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			value, _ := json.Marshal(limits[name])
			fmt.Printf(" %s=%s", printable(name), oneLine(string(value)))
		}
		fmt.Println()
	}
	fmt.Printf("profile  %s\n", printable(q.Profile))
	for _, rule := range q.Egress {
		fmt.Printf("granted  %s\n", printable(rule))
	}
	for _, in := range q.Inputs {
		fmt.Printf("input    %s, %d bytes, by %s\n", quote(in.Name), in.Bytes, in.How)
	}
	fmt.Println()
}

func showVerdict(info *api.RunInfo, intact bool) {
	v := info.Verdict
	if v == nil {
		what := "the supervisor ended before the run: the next one closes it"
		if info.Active {
			what = "the run goes on"
		}
		fmt.Printf("\nrecord   not ended: %s\n", what)
		return
	}
	fmt.Printf("\nverdict  %s, exit code %d: %s\n", v.Status, v.ExitCode, oneLine(v.Reason))
	if v.Remedy != "" {
		fmt.Printf("remedy   %s\n", oneLine(v.Remedy))
	}
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
		fmt.Printf("output   %s, %d bytes, sha256 %s\n", quote(o.Name), o.Bytes, o.SHA256)
	}
	if !intact {
		fmt.Println("record   NOT WHAT WAS WRITTEN")
		return
	}
	complete := "complete"
	if !v.Audit.Complete {
		complete = "not complete"
	}
	fmt.Printf("record   %s: events=%d lost=%d %s\n", complete, v.Audit.Events, v.Audit.Lost, v.Audit.Seal)
}

func auditTail(c *cli.Context) error {
	cl, asJSON, err := query(c)
	if err != nil {
		return err
	}
	if !c.Bool("follow") {
		return usagef("--follow=false: what runs did before is in their records: see `proctor audit list`")
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
	s := "input    " + quote(in.Name)
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
		s += ", for the agent " + quote(q.Agent)
	}
	if q.Conversation != "" {
		s += ", in the conversation " + quote(q.Conversation)
	}
	return s
}
