package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"proctor/api"
)

const socketVariable = "PROCTOR_SOCKET"

// socketFlag is read by socketPath alone: the library would let the environment win over a
// flag that stands before the command.
var socketFlag = &cli.StringFlag{
	Name: "socket", DefaultText: "$" + socketVariable + ", or else " + api.DefaultSocket,
	Usage: "the supervisor's socket, `PATH`", TakesFile: true,
}

// socketPath is what --socket says, wherever on the line it stands, or else the environment.
func socketPath(c *cli.Context) (path string, given bool, err error) {
	for _, ctx := range c.Lineage() {
		if ctx.Command != nil && ctx.IsSet("socket") {
			if path = ctx.String("socket"); path == "" {
				return "", true, usagef("--socket \"\": is empty: name the socket's path")
			}
			return path, true, nil
		}
	}
	if path = os.Getenv(socketVariable); path != "" {
		return path, true, nil
	}
	return api.DefaultSocket, false, nil
}

// client calls the supervisor that the command line means.
func client(c *cli.Context) (*api.Client, error) {
	path, _, err := socketPath(c)
	return &api.Client{Socket: path}, err
}

// query is the start of a command that takes no arguments and prints what the supervisor says.
func query(c *cli.Context) (cl *api.Client, asJSON bool, err error) {
	if asJSON, err = jsonWanted(c); err != nil {
		return nil, false, err
	}
	if err = noArgs(c); err != nil {
		return nil, false, err
	}
	cl, err = client(c)
	return cl, asJSON, err
}

// textList is the values of a flag that may be given again, byte for byte. (The library's
// own list splits at commas, trims, and replaces what is not UTF-8.)
type textList struct{ values []string }

// sameList is what a flag's other names are set to. No argument can hold a NUL.
const sameList = "\x00"

func (l *textList) Set(v string) error {
	if v != sameList {
		l.values = append(l.values, v)
	}
	return nil
}

func (l *textList) String() string { return strings.Join(l.values, ", ") }

// Serialize is how the library copies a value to the flag's other names, which share it.
func (l *textList) Serialize() string { return sameList }

// noEmpty refuses a flag that was given as "", most often from a variable that is not set.
func noEmpty(c *cli.Context, names ...string) error {
	for _, name := range names {
		if c.IsSet(name) && c.String(name) == "" {
			return usagef("--%s \"\": is empty: give a value, or leave the flag out", name)
		}
	}
	return nil
}

func usagef(format string, args ...any) error {
	return exitWith(codeUsage, fmt.Sprintf(format, args...))
}

// The flag package's own messages, which show one dash.
var (
	flagUnknown = regexp.MustCompile(`(?s)^flag provided but not defined: -(.*)$`)
	flagNoValue = regexp.MustCompile(`(?s)^flag needs an argument: -(.*)$`)
	flagBad     = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-(\S+): (.*)$`)
)

// flagRule is what may be written for a flag, which the flag package's "parse error" does not say.
func flagRule(c *cli.Context, name string) string {
	for _, f := range c.Command.Flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f := f.(type) {
		case *cli.BoolFlag:
			return "write it without a value, or with =true or =false"
		case *cli.IntFlag:
			return fmt.Sprintf("write a whole number such as %d", f.Value)
		case *cli.DurationFlag:
			return "write a duration such as 30s or 5m"
		}
	}
	return ""
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func flagMessage(c *cli.Context, m string) string {
	if s := flagUnknown.FindStringSubmatch(m); s != nil {
		return fmt.Sprintf("flag %q is not known", dashed(s[1]))
	}
	if s := flagNoValue.FindStringSubmatch(m); s != nil {
		return fmt.Sprintf("flag %s needs a value", dashed(s[1]))
	}
	if s := flagBad.FindStringSubmatch(m); s != nil {
		why := s[3]
		if rule := flagRule(c, s[2]); why == "parse error" && rule != "" {
			why = rule
		} else if rule != "" {
			why += ": " + rule
		}
		return fmt.Sprintf("%s %s: %s", dashed(s[2]), s[1], why)
	}
	return m
}

func usageError(c *cli.Context, err error, _ bool) error {
	name := c.App.HelpName
	if c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	return usagef("%s: see `%s --help`", flagMessage(c, err.Error()), name)
}

// one is a command's only argument. missing is said where there is none.
func one(c *cli.Context, missing string) (string, error) {
	args := c.Args().Slice()
	if len(args) == 0 {
		return "", usagef("%s", missing)
	}
	if len(args) > 1 {
		return "", usagef("%q stands after %q: one is taken, and flags go before it: see `%s --help`", args[1], args[0], c.Command.HelpName)
	}
	return args[0], nil
}

// noFlags refuses arguments that were meant as flags.
func noFlags(c *cli.Context) error {
	for i, a := range c.Args().Slice() {
		if i > 0 && strings.HasPrefix(a, "-") {
			return usagef("%q stands after %q: flags go before: see `%s --help`", a, c.Args().Get(i-1), c.Command.HelpName)
		}
	}
	return nil
}

// noArgs refuses what a command does not take.
func noArgs(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%s takes no arguments, got %q: see `%[1]s --help`", c.Command.HelpName, c.Args().First())
	}
	return nil
}
