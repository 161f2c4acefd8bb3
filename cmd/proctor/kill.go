package main

import (
	"github.com/urfave/cli/v2"
)

var killCommand = &cli.Command{
	Name: "kill", Usage: "end a run, or take one that waits out of the line", ArgsUsage: "RUN",
	OnUsageError: usageError,
	Flags:        []cli.Flag{socketFlag},
	Action: func(c *cli.Context) error {
		id, err := one(c, "name one run: `proctor status` lists those going on")
		if err != nil {
			return err
		}
		cl, err := client(c)
		if err != nil {
			return err
		}
		return cl.Kill(c.Context, id)
	},
}
