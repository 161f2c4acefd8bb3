package main_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	proctor "proctor/cmd/proctor"
)

// What can't be read of a flag is named with the flag, its value and what may be written, whatever
// command has the flag.
func TestFlagRules(t *testing.T) {
	tried := 0
	try := func(path []string, flags []cli.Flag) {
		for _, f := range flags {
			switch f.(type) {
			case *cli.StringFlag, *cli.StringSliceFlag, *cli.GenericFlag:
				continue // takes any value
			}
			for _, name := range f.Names() {
				tried++
				app := proctor.New()
				app.Writer = io.Discard
				dashes := "--"[:min(2, len(name))]
				err := app.Run(append(slices.Clone(path), dashes+name+"=x"))
				if want := fmt.Sprintf(`%s%s "x": write `, dashes, name); err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%q: %v, want %s…", path, err, want)
				}
			}
		}
	}
	var below func(path []string, commands []*cli.Command)
	below = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			if c.Name == "help" {
				continue // the library's own
			}
			path := append(slices.Clone(path), c.Name)
			try(path, append(slices.Clone(c.Flags), cli.HelpFlag))
			below(path, c.Subcommands)
		}
	}
	app := proctor.New()
	try([]string{"proctor"}, append(slices.Clone(app.Flags), cli.HelpFlag, cli.VersionFlag))
	below([]string{"proctor"}, app.Commands)
	if tried < 40 {
		t.Errorf("only %d flags were tried", tried)
	}
}
