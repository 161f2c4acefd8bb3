package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"proctor/alerts"
	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/spike"
	"proctor/supervisor/config"
	"proctor/supervisor/profile"
)

var alertsReplayCommand = &cli.Command{
	Name: "replay", Usage: "run rules over records, and print what would have been told", ArgsUsage: "RECORDS...",
	Description: `RECORDS are records' files (events.jsonl), or directories in which all of them are read, such as
/var/lib/proctor/runs. Rules are those of --rules, a file like proctor.yaml of which only alerts
and profiles count, or the defaults; runs of a profile that is there still go by its alerts.run,
as it is now. A line that is no event is left out with a warning, as is what is no regular
file; a file that is named twice counts once. Nobody is told of anything, and no supervisor is
needed.

   sudo proctor alerts replay --rules new.yaml /var/lib/proctor/runs`,
	OnUsageError: usageError, Action: alertsReplay,
	Flags: []cli.Flag{outputFormat, replayProfilesFlag, &cli.StringFlag{Name: "rules", Usage: "`FILE` with alerts as in proctor.yaml", TakesFile: true}},
}

// replayProfilesFlag is profilesFlag with one more place to look in.
var replayProfilesFlag = &cli.StringFlag{
	Name: "profiles", DefaultText: "$" + profilesVariable + ", or else what --rules says, or else " + profile.DefaultDir,
	Usage: "look for profiles in `DIR`", TakesFile: true,
}

func alertsReplay(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("name records: files, or directories such as /var/lib/proctor/runs")
	}
	cfg := &config.Config{}
	if file := c.String("rules"); file != "" {
		if cfg, err = config.Load(file); err != nil {
			return err
		}
	}
	dir, given, err := profilesDir(c)
	if err != nil {
		return err
	}
	if !given && cfg.Profiles != "" {
		dir = cfg.Profiles
	}
	records := replayed{warn: func(format string, args ...any) {
		fmt.Fprintln(os.Stderr, "proctor:", oneLine(fmt.Sprintf(format, args...)))
	}}
	if err := records.read(c.Args().Slice()); err != nil {
		return err
	}
	book, err := incident.NewBook(incident.Options{Quiet: cfg.Alerts.Quiet(), Reopen: cfg.Alerts.Reopen(), Keep: 100 * 365 * 24 * time.Hour})
	if err != nil {
		return err
	}
	rules := cfg.Alerts.Watched()
	watch := alerts.New(rules, book)
	missing := 0
	for _, name := range slices.Sorted(maps.Keys(records.profiles)) {
		p, err := profile.Find(dir, name)
		if err == nil {
			watch.Profile(name, p.Alerts.Run.Over(rules.Spikes[spike.ByRun]))
		} else if missing++; missing <= maxWarnings {
			records.warn("runs of profile %q are judged by alerts.run alone: %v", name, err)
		}
	}
	if missing > maxWarnings {
		records.warn("so are those of %d profiles in all", missing)
	}
	var last time.Time
	for i := range records.events {
		e := &records.events[i]
		// What has become quiet by then is resolved then.
		if e.Time.Sub(last) >= time.Second {
			book.Tick(e.Time)
			last = e.Time
		}
		watch.Observe(e)
	}
	list := book.List()
	slices.Reverse(list)
	if asJSON {
		return printJSON(list)
	}
	for _, i := range list {
		fmt.Println(i.Opened.UTC().Format(time.RFC3339), message.Line(i))
	}
	raised := book.Raised()
	fmt.Printf("%d records, %d events that count, %d incidents\n", records.files, len(records.events), len(list))
	if records.skipped > 0 {
		fmt.Printf("  %d lines are no events, and are left out\n", records.skipped)
	}
	for _, rule := range slices.Sorted(maps.Keys(raised)) {
		fmt.Printf("  %s: %d alarms\n", rule, raised[rule])
	}
	return nil
}
