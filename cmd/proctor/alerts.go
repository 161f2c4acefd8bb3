package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/api"
	"proctor/audit"
	"proctor/strictyaml"
)

var alertsCommand = &cli.Command{
	Name:  "alerts",
	Usage: "see, acknowledge and silence incidents, and test who is told",
	Description: `An incident is what alarms have in common: too many blocked attempts, or single acts that
somebody should hear of at once. docs/alerts.md has the rules and how sinks are set up.`,
	OnUsageError: usageError,
	Subcommands: []*cli.Command{
		{
			Name: "list", Usage: "list incidents, the newest first",
			Description:  "Lists those that are open, the silences there are, and sinks that don't work.",
			OnUsageError: usageError, Action: alertsList,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.BoolFlag{Name: "all", Usage: "also those that are resolved, and silences that are over"}},
		},
		{
			Name: "show", Usage: "show an incident", ArgsUsage: "INCIDENT",
			OnUsageError: usageError, Action: alertsShow, Flags: []cli.Flag{socketFlag, outputFormat},
		},
		{
			Name: "ack", Usage: "say that you look after an incident", ArgsUsage: "INCIDENT",
			Description:  "Sinks that can't edit what they told are told no more of it until it is resolved, or gets more severe.",
			OnUsageError: usageError, Action: alertsAck,
			Flags: []cli.Flag{socketFlag, &cli.StringFlag{Name: "note", Usage: "`TEXT` for others to read"}},
		},
		{
			Name: "silence", Usage: "have nobody told of some incidents for a while",
			Description: `Incidents are kept all the same, and told if they are still open when the silence ends.
All that is given must fit, and everything in an incident must be covered: one in which other
callers or destinations have a part is told. Single acts (sign.…) are no matter of destination:
those are silenced by --rule, --caller or --agent.

   proctor alerts silence --for 2h --reason "load test" --caller ci
   proctor alerts silence --for 30d --reason "telemetry, ticket 12" --destination telemetry.example`,
			OnUsageError: usageError, Action: alertsSilence,
			Flags: []cli.Flag{
				socketFlag,
				&cli.StringFlag{Name: "for", Usage: "how `LONG`, such as 2h or 7d"},
				&cli.StringFlag{Name: "reason", Usage: "why, for others to read: `TEXT`"},
				&cli.StringFlag{Name: "caller", Usage: "`USER` whose runs, by name or number"},
				&cli.StringFlag{Name: "agent", Usage: "`LABEL` of the agent"},
				&cli.StringFlag{Name: "profile", Usage: "`NAME` of the profile"},
				&cli.StringFlag{Name: "image", Usage: "`NAME` of the image"},
				&cli.StringFlag{Name: "rule", Usage: "`RULE` that alarmed, such as spike.run, or sign for all signs"},
				&cli.StringFlag{Name: "destination", Usage: "`HOST` that was tried, or one below it; or a network such as 192.0.2.0/24"},
				&cli.StringFlag{Name: "incident", Usage: "`ID` of one incident"},
			},
		},
		{
			Name: "expire", Usage: "end a silence now", ArgsUsage: "SILENCE",
			OnUsageError: usageError, Flags: []cli.Flag{socketFlag},
			Action: func(c *cli.Context) error {
				id, err := one(c, "name one silence: `proctor alerts list` has them")
				if err != nil {
					return err
				}
				cl, err := client(c)
				if err != nil {
					return err
				}
				return cl.Expire(c.Context, id)
			},
		},
		{
			Name: "test", Usage: "send a marked test to sinks, and say what came of it",
			Description:  "A sink that was given up because it refused is used again if the test gets through.",
			OnUsageError: usageError, Action: alertsTest,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.StringFlag{Name: "sink", Usage: "the one of this `NAME`; default: all"}},
		},
		alertsReplayCommand,
	},
	Action: func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return usagef("command %q is not known: see `proctor alerts --help`", name)
		}
		return cli.ShowSubcommandHelp(c)
	},
}

func alertsList(c *cli.Context) error {
	cl, asJSON, err := query(c)
	if err != nil {
		return err
	}
	a, err := cl.Alerts(c.Context)
	if err != nil {
		return err
	}
	now := time.Now()
	if !c.Bool("all") {
		a.Incidents = slices.DeleteFunc(a.Incidents, func(i *incident.Incident) bool { return i.State != incident.Open })
		a.Silences = slices.DeleteFunc(a.Silences, func(s incident.Silence) bool { return !now.Before(s.End) })
	}
	if asJSON {
		return printJSON(a)
	}
	for _, h := range a.Sinks {
		switch {
		case h.Refused:
			fmt.Printf("SINK %s REFUSES: %s: mend it, then `proctor alerts test --sink %s`\n", h.Sink, printable(h.Error), h.Sink)
		case !h.Failing.IsZero():
			fmt.Printf("SINK %s does not work since %s: %s; %d wait, next try %s\n", h.Sink, h.Failing.Local().Format(time.DateTime), printable(h.Error), h.Waiting, h.Next.Local().Format(time.TimeOnly))
		}
	}
	if len(a.Sinks) == 0 {
		fmt.Println("no sinks are configured: nobody is told (docs/alerts.md)")
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(a.Incidents) > 0 {
		fmt.Fprintln(w, "INCIDENT\tSEVERITY\tSTATE\tSINCE\tATTEMPTS\tRUNS\tWHAT")
	}
	for _, i := range a.Incidents {
		state := string(i.State)
		switch {
		case i.Silence != "":
			state = "silenced"
		case i.State == incident.Open && i.Ack != nil:
			state = "acknowledged"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", i.ID, i.Severity, state, i.Opened.Local().Format(time.DateTime), i.Attempts, i.RunCount(), i.Title().Printable())
	}
	if len(a.Silences) > 0 {
		fmt.Fprintln(w, "SILENCE\tUNTIL\tBY\tOF\tREASON")
	}
	for _, s := range a.Silences {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.ID, s.End.Local().Format(time.DateTime), printable(s.By), printable(matches(s.Matches)), printable(s.Reason))
	}
	return w.Flush()
}

func matches(m incident.Matcher) string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"caller", m.Caller}, {"agent", m.Agent}, {"profile", m.Profile}, {"image", m.Image}, {"rule", m.Rule}, {"destination", m.Destination}, {"incident", m.Incident},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

func alertsShow(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	id, err := one(c, "name one incident: `proctor alerts list --all` has them")
	if err != nil {
		return err
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	a, err := cl.Alerts(c.Context)
	if err != nil {
		return err
	}
	all := map[string]*incident.Incident{}
	for _, i := range a.Incidents {
		all[i.ID] = i
	}
	i, err := incident.Find(all, id)
	if err != nil {
		return fmt.Errorf("%w: see `proctor alerts list --all`", err)
	}
	if asJSON {
		return printJSON(i)
	}
	showIncident(i)
	return nil
}

func showIncident(i *incident.Incident) {
	n := &sink.Notice{What: sink.Updated, Incident: i}
	fmt.Println(message.Headline(n))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range (message.Options{CodeLines: 20}).Fields(n) {
		name := f.Name
		for line := range strings.SplitSeq(f.Value, "\n") {
			fmt.Fprintf(w, "%s\t%s\n", name, line)
			name = ""
		}
	}
	_ = w.Flush() // as fmt.Println does
}

func alertsAck(c *cli.Context) error {
	id, err := one(c, "name one incident: `proctor alerts list` has them")
	if err != nil {
		return err
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	if err := cl.Acknowledge(c.Context, id, audit.Text(c.String("note"))); err != nil {
		return err
	}
	fmt.Println("acknowledged")
	return nil
}

func alertsSilence(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	if c.String("reason") == "" {
		return usagef("--reason: say why, for others to read: see `proctor alerts silence --help`")
	}
	length, err := strictyaml.ParseDuration(c.String("for"))
	if err != nil || length < time.Second {
		return usagef("--for %q: say how long, such as 2h or 7d", c.String("for"))
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	done, err := cl.Silence(c.Context, api.SilenceRequest{
		Seconds: int64(length / time.Second), Reason: c.String("reason"),
		Matches: incident.Matcher{
			Caller: c.String("caller"), Agent: c.String("agent"), Profile: c.String("profile"), Image: c.String("image"),
			Rule: c.String("rule"), Destination: c.String("destination"), Incident: c.String("incident"),
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(done.ID)
	if done.Covers == 0 {
		fmt.Fprintln(os.Stderr, "it covers no incident that is open now")
	} else {
		fmt.Fprintf(os.Stderr, "it covers %d that are open now\n", done.Covers)
	}
	return nil
}

func alertsTest(c *cli.Context) error {
	cl, asJSON, err := query(c)
	if err != nil {
		return err
	}
	if err := noArgs(c); err != nil {
		return err
	}
	tested, err := cl.TestSinks(c.Context, c.String("sink"))
	if err != nil {
		return err
	}
	failed := 0
	for _, t := range tested {
		if t.Error != "" {
			failed++
		}
	}
	if asJSON {
		if err := printJSON(tested); err != nil {
			return err
		}
	} else {
		for _, t := range tested {
			if t.Error == "" {
				fmt.Printf("%s: told\n", t.Sink)
			} else {
				fmt.Printf("%s: NOT TOLD: %s\n", t.Sink, printable(t.Error))
			}
		}
	}
	if failed > 0 {
		return exitWith(1, fmt.Sprintf("%d of %d sinks did not take the test", failed, len(tested)))
	}
	return nil
}
