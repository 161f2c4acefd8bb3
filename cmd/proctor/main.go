// Command proctor runs the code that a language model wrote, once, in a box made for it,
// and writes down everything it did. `proctor help` lists what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

// version is set when it is built.
var version = "development"

// Exit codes; a run that took place gives its program's own.
const (
	codeFailed      = 125 // Proctor could not do it
	codeUsage       = 2
	codeInterrupted = 130 // 128 + SIGINT, as shells have it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args))
}

// run returns the process's exit code. Errors are one line on stderr.
func run(ctx context.Context, args []string) int {
	app, out := New(), &libraryOutput{w: os.Stdout}
	app.Writer = out
	err := app.RunContext(ctx, args)
	if err == nil {
		err = out.err
	}
	if err == nil {
		return 0
	}
	// Not any error with an ExitCode, such as that of a command that was run.
	if exit, ok := errors.AsType[*exitError](err); ok {
		if exit.message != "" {
			fmt.Fprintln(os.Stderr, "proctor:", oneLine(exit.message))
		}
		return exit.code
	}
	fmt.Fprintln(os.Stderr, "proctor:", oneLine(err.Error()))
	return codeFailed
}

// libraryOutput is where the library prints help and version. It drops errors; this keeps the first.
type libraryOutput struct {
	w   io.Writer
	err error
}

func (o *libraryOutput) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// exitError ends the process with a code of its own, and a message unless that is empty.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

func exitWith(code int, message string) error { return &exitError{code, message} }

// New is the command line.
func New() *cli.App {
	app := &cli.App{
		Name:                 "proctor",
		Usage:                "run a model's code in a box, watched by the kernel",
		Version:              version,
		EnableBashCompletion: true,
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
			runCommand, outputsCommand, auditCommand, killCommand, alertsCommand, imagesCommand, profileCommand,
			serveCommand, statusCommand, doctorCommand, completionCommand, manCommand,
		},
	}
	prepare(app.Commands)
	return app
}

// prepare takes "help" from commands that have none below them, where it is an argument, and has
// all of them offer what their flags take.
func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelpCommand = len(c.Subcommands) == 0
		if c.BashComplete == nil {
			c.BashComplete = func(c *cli.Context) { offer(c) }
		}
		prepare(c.Subcommands)
	}
}
