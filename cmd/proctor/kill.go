package main

import (
	"github.com/urfave/cli/v2"
)

var killCommand = &cli.Command{
	Name: "kill", Usage: "end a run", ArgsUsage: "RUN",
	OnUsageError: usageError,
	Flags:        []cli.Flag{socketFlag},
	Action: func(c *cli.Context) error {
		if c.NArg() != 1 {
			return usagef("name one run: `proctor status` lists those going on")
		}
		return client(c).Kill(c.Context, c.Args().First())
	},
}
