package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"

	"proctor/images"
)

var imagesCommand = &cli.Command{
	Name:         "images",
	Usage:        "list and build what runs may use",
	OnUsageError: usageError,
	Subcommands: []*cli.Command{
		{
			Name: "list", Usage: "list the images that the supervisor accepts",
			OnUsageError: usageError, Action: imagesList,
			Flags: []cli.Flag{socketFlag, outputFormat, &cli.BoolFlag{Name: "packages", Usage: "with the packages in each"}},
		},
		{
			Name: "build", Usage: "build images from recipes (as root) and lock them", ArgsUsage: "[RECIPE...]",
			Description: `Builds each recipe, all of them if none is named, from this machine's Debian sources, and
enters its digest in DIR/images.lock. What has not changed is not built again. A running
supervisor takes new images up when it is started again.`,
			OnUsageError: usageError, Action: imagesBuild,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "dir", Value: "/var/lib/proctor/images", Usage: "put archives and the lock file in `DIR`", TakesFile: true},
				&cli.StringFlag{Name: "recipes", Usage: "look for recipes in `DIR` first, then among the built-in ones", TakesFile: true},
				&cli.BoolFlag{Name: "force", Usage: "build also what has not changed"},
			},
		},
	},
	Action: func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			return usagef("command %q is not known: see `proctor images --help`", name)
		}
		return cli.ShowSubcommandHelp(c)
	},
}

func imagesList(c *cli.Context) error {
	cl, asJSON, err := query(c)
	if err != nil {
		return err
	}
	list, err := cl.Images(c.Context)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(list)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tLANGUAGES\tSIZE\tPACKAGES\tBUILT\tDIGEST")
	for _, i := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", i.Name, strings.Join(i.Languages, ", "), units.BytesSize(float64(i.RootBytes)), len(i.Packages), i.Built.Format(time.DateOnly), i.Digest)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if c.Bool("packages") {
		for _, i := range list {
			fmt.Printf("\n%s: %s\n", i.Name, i.Description)
			for _, p := range slices.Sorted(maps.Keys(i.Packages)) {
				fmt.Printf("  %s %s\n", p, i.Packages[p])
			}
		}
	}
	return nil
}

func imagesBuild(c *cli.Context) error {
	recipes := images.Recipes{Dir: c.String("recipes")}
	names := c.Args().Slice()
	if err := noFlags(c); err != nil {
		return err
	}
	if len(names) == 0 {
		var err error
		if names, err = recipes.Names(); err != nil {
			return err
		}
	}
	for _, name := range names {
		recipe, err := recipes.Load(name)
		if err != nil {
			return err
		}
		res, err := images.Build(c.Context, images.BuildOptions{
			Recipe: recipe, OutDir: c.String("dir"), Force: c.Bool("force"),
			CacheDir: filepath.Join(c.String("dir"), "cache"),
			Progress: images.PlainProgress(os.Stderr, name+": "),
		})
		if err != nil {
			return err
		}
		state := "unchanged"
		if res.Built {
			state = "built"
		}
		fmt.Printf("%s: %s, %s, %s\n", res.Image.Name, state, units.BytesSize(float64(res.Image.RootBytes)), res.Image.Digest)
	}
	return nil
}
