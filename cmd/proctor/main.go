// Command proctor runs the code that a language model wrote, once, in a box made for it,
// and writes down everything it did. `proctor help` lists what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

// version is set when it is built.
var version = "development"

// Exit codes; a run that took place gives its program's own.
const (
	codeFailed = 125 // Proctor could not do it
	codeUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args))
}

// run returns the process's exit code. Errors are one line on stderr.
func run(ctx context.Context, args []string) int {
	err := New().RunContext(ctx, args)
	if err == nil {
		return 0
	}
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		if exit.Error() != "" {
			fmt.Fprintln(os.Stderr, "proctor:", oneLine(exit.Error()))
		}
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "proctor:", oneLine(err.Error()))
	return codeFailed
}

// New is the command line.
func New() *cli.App {
	return &cli.App{
		Name:                 "proctor",
		Usage:                "run a model's code in a box, watched by the kernel",
		Version:              version,
		EnableBashCompletion: true,
		HideHelpCommand:      false,
		Suggest:              true,
		ExitErrHandler:       func(*cli.Context, error) {}, // main alone exits
		OnUsageError:         usageError,
		CommandNotFound: func(c *cli.Context, name string) {
			// The action below reports it.
		},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("command %q is not known: see `proctor help`", name)
			}
			return cli.ShowAppHelp(c)
		},
		Flags: []cli.Flag{socketFlag},
		Commands: []*cli.Command{
			runCommand, auditCommand, killCommand, imagesCommand,
			serveCommand, statusCommand, doctorCommand, completionCommand, manCommand,
		},
	}
}
