package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"

	"proctor/alerts/spike"
	"proctor/netpolicy/egress"
	"proctor/supervisor/access"
	"proctor/supervisor/limits"
	"proctor/supervisor/profile"
	"proctor/supervisor/thresholds"
)

const profilesVariable = "PROCTOR_PROFILES"

// profilesFlag is read by profilesDir alone, which takes an empty variable for one that is not set.
var profilesFlag = &cli.StringFlag{
	Name: "profiles", DefaultText: "$" + profilesVariable + ", or else " + profile.DefaultDir,
	Usage: "look for profiles in `DIR`", TakesFile: true,
}

var profileCommand = &cli.Command{
	Name:         "profile",
	Usage:        "check and show what runs are granted",
	OnUsageError: usageError,
	Description: `A profile is a file NAME.yaml that says what a run of that profile may reach, and with
which credentials. These commands need no supervisor and no rights but to read the files.
The profile offline is always there and grants nothing.`,
	Subcommands: []*cli.Command{
		{
			Name: "check", Usage: "check profiles before they are used", ArgsUsage: "FILE...",
			Description: `Reads each file as the supervisor would, and says what is wrong with it, with file and line,
and which grants are worth a second look, such as those of private addresses. Exit code 1
means that a file is not taken.

   proctor profile check /etc/proctor/profiles/*.yaml
   proctor profile check -o json api-client.yaml`,
			OnUsageError: usageError, Action: profileCheck, Flags: []cli.Flag{outputFormat},
		},
		{
			Name: "show", Usage: "show a profile's rules as they are applied", ArgsUsage: "NAME|FILE",
			Description: `Shows names in their one spelling, ports and limits of egress with their defaults filled in, and of
credentials where they go and where they are from. Secrets are not read. An argument that
has a / or ends in .yaml is a file, any other a name.

   proctor profile show api-client
   proctor profile show -o json ./api-client.yaml`,
			OnUsageError: usageError, Action: profileShow, Flags: []cli.Flag{profilesFlag, outputFormat},
		},
		{
			Name: "schema", Usage: "print the JSON Schema of a profile, for editors",
			Description: `An editor with a YAML language server takes it from a line such as this at a profile's top:

   # yaml-language-server: $schema=/usr/share/proctor/profile.schema.json`,
			OnUsageError: usageError, Action: func(c *cli.Context) error {
				if err := noArgs(c); err != nil {
					return err
				}
				_, err := os.Stdout.Write(profile.Schema)
				return err
			},
		},
		{
			Name: "list", Usage: "list the profiles there are",
			OnUsageError: usageError, Action: profileList, Flags: []cli.Flag{profilesFlag, outputFormat},
		},
	},
	Action: func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return usagef("command %q is not known: see `proctor profile --help`", name)
		}
		return cli.ShowSubcommandHelp(c)
	},
}

// profilesDir is where profiles are looked for, and whether the caller named it.
func profilesDir(c *cli.Context) (dir string, given bool, err error) {
	if err := noEmpty(c, "profiles"); err != nil {
		return "", false, err
	}
	if dir = c.String("profiles"); dir != "" {
		return dir, true, nil
	}
	if dir = os.Getenv(profilesVariable); dir != "" {
		return dir, true, nil
	}
	return profile.DefaultDir, false, nil
}

// profileState is what check says of a file.
type profileState struct {
	File        string   `json:"file"`
	OK          bool     `json:"ok"`
	Name        string   `json:"name,omitempty"`
	Grants      int      `json:"grants"`
	Credentials int      `json:"credentials"`
	Notices     []string `json:"notices,omitempty"`
	Error       string   `json:"error,omitempty"`
}

func profileCheck(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	files := c.Args().Slice()
	if err := noFlags(c); err != nil {
		return err
	}
	if len(files) == 0 {
		return usagef("no file: name the profiles to check: see `proctor profile check --help`")
	}
	failed := false
	states := make([]profileState, 0, len(files))
	for _, file := range files {
		st := profileState{File: file}
		p, err := profile.Load(file)
		if err != nil {
			failed, st.Error = true, err.Error()
		} else {
			st.OK, st.Name, st.Grants, st.Credentials, st.Notices = true, p.Name, len(p.Egress.Allow), len(p.Egress.Credentials), p.Egress.Notices()
		}
		states = append(states, st)
	}
	if asJSON {
		if err := printJSON(states); err != nil {
			return err
		}
	} else {
		printStates(states)
	}
	if failed {
		return exitWith(1, "")
	}
	return nil
}

func printStates(states []profileState) {
	for _, st := range states {
		if !st.OK {
			fmt.Fprintln(os.Stderr, "proctor:", oneLine(st.Error))
			continue
		}
		file := printable(st.File)
		fmt.Printf("%s: ok, grants: %d, credentials: %d\n", file, st.Grants, st.Credentials)
		for _, n := range st.Notices {
			fmt.Printf("%s: notice: %s\n", file, n)
		}
	}
}

// profileView is a profile as it is shown: with nothing that could be a secret.
type profileView struct {
	Name        string                       `json:"name"`
	Description string                       `json:"description"`
	Images      []string                     `json:"images"` // null: every one
	Callers     access.Who                   `json:"callers"`
	RunLimits   map[string]map[string]string `json:"limits"` // default and ceiling, as far as the profile says
	OnAuditLoss limits.LossPolicy            `json:"on_audit_loss,omitempty"`
	Alerts      thresholds.Of                `json:"alerts"` // zero: proctor.yaml's
	Isolation   profile.Isolation            `json:"isolation"`
	Allow       []grantView                  `json:"allow"`
	Credentials []credentialView             `json:"credentials"`
	Limits      egress.Limits                `json:"egress_limits"`
	Notices     []string                     `json:"notices,omitempty"`
}

type grantView struct {
	Rule string `json:"rule"` // as refusals and records write it
	egress.Grant
}

type credentialView struct {
	Name    string   `json:"name"`
	Host    string   `json:"host"`
	Place   string   `json:"place"` // header Authorization, query key, ...
	Format  string   `json:"format,omitempty"`
	Source  string   `json:"source"` // file PATH, env NAME, command PROGRAM
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
}

func viewProfile(p *profile.Profile) profileView {
	v := profileView{
		Name: p.Name, Description: p.Description, Limits: p.Egress.Limits, Notices: p.Egress.Notices(),
		Images: p.Images, Callers: p.Callers, OnAuditLoss: p.OnAuditLoss, Alerts: p.Alerts, Isolation: p.Isolation,
		RunLimits: map[string]map[string]string{"default": p.Limits.Default.Texts(), "ceiling": p.Limits.Ceiling.Texts()},
		Allow:     []grantView{}, Credentials: []credentialView{},
	}
	for _, g := range p.Egress.Allow {
		v.Allow = append(v.Allow, grantView{g.String(), g})
	}
	for _, cr := range p.Egress.Credentials {
		v.Credentials = append(v.Credentials, credentialView{
			Name: cr.Name, Host: cr.Host, Place: secretPlace(cr), Format: cr.Format, Source: secretSource(cr.Source),
			Methods: cr.Methods, Paths: cr.Paths,
		})
	}
	return v
}

func secretPlace(cr egress.Credential) string {
	switch {
	case cr.Header != "":
		return "header " + cr.Header
	case cr.Query != "":
		return "query " + cr.Query
	case cr.Basic != "":
		return "basic " + cr.Basic
	default:
		return "placeholder " + cr.Placeholder
	}
}

// secretSource leaves out a command's arguments: people write tokens there.
func secretSource(s egress.Source) string {
	switch {
	case s.File != "":
		return "file " + s.File
	case s.Env != "":
		return "env " + s.Env
	case len(s.Command) > 1:
		return fmt.Sprintf("command %s (arguments: %d)", s.Command[0], len(s.Command)-1)
	default:
		return "command " + s.Command[0]
	}
}

func profileShow(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	dir, _, err := profilesDir(c)
	if err != nil {
		return err
	}
	arg, err := one(c, "name one profile or file: `proctor profile list` shows those there are")
	if err != nil {
		return err
	}
	var p *profile.Profile
	if strings.Contains(arg, "/") || strings.HasSuffix(arg, ".yaml") {
		p, err = profile.Load(arg)
	} else {
		p, err = profile.Find(dir, arg)
	}
	if err != nil {
		return err
	}
	v := viewProfile(p)
	if asJSON {
		return printJSON(v)
	}
	return printProfile(v)
}

func printProfile(v profileView) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	// first names what the lines are about, on the first of them.
	lines := func(first string, list []string) {
		if len(list) == 0 {
			list = []string{"none"}
		}
		for _, l := range list {
			fmt.Fprintf(w, "%s\t%s\n", first, printable(l))
			first = ""
		}
	}
	lines("profile", []string{v.Name})
	lines("description", []string{v.Description})
	if v.Images == nil {
		lines("images", []string{"every one"})
	} else {
		lines("images", v.Images)
	}
	if !v.Callers.Empty() {
		lines("callers", []string{fmt.Sprintf("users %v, groups %v", v.Callers.Users, v.Callers.Groups)})
	}
	for _, what := range []string{"default", "ceiling"} {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(v.RunLimits[what])) {
			list = append(list, name+" "+v.RunLimits[what][name])
		}
		if len(list) > 0 {
			lines(what+" limits", []string{strings.Join(list, ", ")})
		}
	}
	if v.OnAuditLoss != "" {
		lines("on audit loss", []string{string(v.OnAuditLoss)})
	}
	if r := v.Alerts.Run; r != (thresholds.Rule{}) {
		rule := r.Over(spike.Defaults()[spike.ByRun])
		text := fmt.Sprintf("at %d blocked attempts in %s", rule.Threshold, rule.Window)
		if rule.Off {
			text = "off"
		}
		lines("alarm", []string{text})
	}
	var grants, credentials []string
	for _, g := range v.Allow {
		s := g.Rule
		if g.WebSocket {
			s += ", websocket"
		}
		grants = append(grants, s)
	}
	for _, cr := range v.Credentials {
		s := fmt.Sprintf("%s: %s, %s", cr.Name, cr.Host, cr.Place)
		if cr.Format != "" {
			s += fmt.Sprintf(" %q", cr.Format)
		}
		s += ", from " + cr.Source
		if len(cr.Methods) > 0 {
			s += ", methods " + strings.Join(cr.Methods, " ")
		}
		if len(cr.Paths) > 0 {
			s += ", paths " + strings.Join(cr.Paths, " ")
		}
		credentials = append(credentials, s)
	}
	lines("grants", grants)
	lines("credentials", credentials)
	lines("egress limits", []string{
		fmt.Sprintf("queries %d, names under wildcards %d, connections at a time %d", v.Limits.Queries, v.Limits.Names, v.Limits.Connections),
		fmt.Sprintf("bytes up %s, bytes down %s, idle %s", units.BytesSize(float64(v.Limits.BytesUp)), units.BytesSize(float64(v.Limits.BytesDown)), v.Limits.Idle),
	})
	if len(v.Notices) > 0 {
		lines("notices", v.Notices)
	}
	return w.Flush()
}

func profileList(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err == nil {
		err = noArgs(c)
	}
	if err != nil {
		return err
	}
	dir, given, err := profilesDir(c)
	if err != nil {
		return err
	}
	list, err := profile.LoadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && !given {
		list, err = []*profile.Profile{profile.Offline()}, nil
	}
	if list == nil {
		return err
	}
	if asJSON {
		views := make([]profileView, len(list))
		for i, p := range list {
			views[i] = viewProfile(p)
		}
		return errors.Join(printJSON(views), err)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tGRANTS\tCREDENTIALS\tDESCRIPTION")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", p.Name, len(p.Egress.Allow), len(p.Egress.Credentials), printable(p.Description))
	}
	return errors.Join(w.Flush(), err)
}
