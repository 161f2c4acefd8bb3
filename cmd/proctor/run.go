package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"proctor/api"
	"proctor/audit"
	"proctor/supervisor"
)

var runCommand = &cli.Command{
	Name:      "run",
	Usage:     "run a program in a box of its own",
	ArgsUsage: "FILE|- [-- ARGUMENTS...]",
	Description: `The program is read from FILE, or from stdin for "-". It finds its inputs in /inputs,
works in /scratch, and leaves results in /outputs. It has nothing of this machine but what
is passed in, and no network but what its profile grants by name.

The exit code is the program's own, or 124 for a timeout or when it had all its processor time, 125 when Proctor could not run
it, 137 when it was killed or ran out of memory, 2 for a wrong command line.

   proctor run analysis.py
   proctor run --input data.csv --output-dir results analysis.py -- --year 2015
   echo 'print(6*7)' | proctor run --lang python --json -`,
	OnUsageError: usageError,
	Action:       runAction,
	Flags: []cli.Flag{
		socketFlag,
		&cli.BoolFlag{Name: "json", Usage: "print the verdict as JSON, with the program's output in it, and nothing else"},
		&cli.StringFlag{Name: "lang", Aliases: []string{"l"}, Usage: "the program's `LANGUAGE`; default: by the file's ending"},
		&cli.StringFlag{Name: "image", Usage: "`NAME` of the image to run in; default: the configured one for the language"},
		&cli.GenericFlag{Name: "input", Aliases: []string{"i"}, Value: &textList{}, Usage: "show the file, or the files beneath the directory, at /inputs/NAME, read-only: `PATH[:NAME]`; may be given again"},
		&cli.StringFlag{Name: "output-dir", Aliases: []string{"o"}, Usage: "put what the program leaves in /outputs into `DIR`; files that exist are not replaced"},
		&cli.StringFlag{Name: "profile", Aliases: []string{"p"}, Usage: "run under the profile `NAME`, which says what it may reach; default: the configured one, which is offline"},
		&cli.BoolFlag{Name: "deny-network", Usage: "let it reach nothing, whatever the profile grants"},
		&cli.StringSliceFlag{Name: "allow", Usage: "of what the profile grants, let it reach `HOST[:PORT]` alone, or a CIDR[:PORT]; may be given again"},
		&cli.StringFlag{Name: "agent", Usage: "record that the agent `NAME` asks for it; nothing follows from that"},
		&cli.StringFlag{Name: "conversation", Usage: "record that it belongs to the conversation `ID`; nothing follows from that"},
		&cli.StringFlag{Name: "timeout", Usage: "end it after `DURATION` such as 30s"},
		&cli.StringFlag{Name: "memory", Usage: "let it use at most `SIZE` such as 512M, and what scratch and its files may take on top"},
		&cli.StringFlag{Name: "cpus", Usage: "let it use at most `NUMBER` processors, such as 1.5"},
		&cli.StringFlag{Name: "cpu-time", Usage: "end it when its processes had `DURATION` of processor time together"},
		&cli.StringFlag{Name: "pids", Usage: "let it have at most `NUMBER` processes and threads"},
		&cli.StringFlag{Name: "audit-events", Usage: "let it do at most `NUMBER` things that are recorded; past it, it is ended some milliseconds later, and what it does until then is counted alone"},
		&cli.StringFlag{Name: "scratch", Usage: "let it write at most `SIZE` such as 1G in /scratch, /tmp and /outputs together"},
	},
}

// languages maps what files end in to what interpreters are called in image recipes.
var languages = map[string]string{
	".py": "python", ".sh": "sh", ".bash": "bash", ".js": "node", ".mjs": "node", ".cjs": "node",
	".pl": "perl", ".rb": "ruby", ".r": "r", ".lua": "lua",
}

func runAction(c *cli.Context) error {
	req, err := runRequest(c)
	if err != nil {
		return notRun(c, err)
	}
	files, err := openInputs(c, req)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return notRun(c, err)
	}
	cl, err := client(c)
	if err != nil {
		return err
	}
	var out *outputDir
	if dir := c.String("output-dir"); dir != "" {
		if out, err = openOutputDir(dir); err != nil {
			return notRun(c, err)
		}
		defer out.close()
	}

	asJSON := c.Bool("json")
	started := time.Now()
	admitted := ""
	h := api.RunHandler{
		Admitted: func(run string) { admitted = run },
		Stdout:   func([]byte) error { return nil },
		Stderr:   func([]byte) error { return nil },
	}
	stdout, stderr := programOutput(os.Stdout), programOutput(os.Stderr)
	if !asJSON {
		h.Waits = func(run string, before int) {
			fmt.Fprintf(os.Stderr, "proctor: run %s waits for room: at most %d runs are before it\n", run, before)
		}
		h.Stdout = func(p []byte) error { _, err := stdout.Write(p); return err }
		h.Stderr = func(p []byte) error { _, err := stderr.Write(p); return err }
	}
	v, err := cl.Run(c.Context, req, files, h)
	if err != nil && out != nil {
		out.abandon()
	}
	if errors.Is(err, context.Canceled) {
		return exitWith(codeInterrupted, "interrupted: the run was ended")
	}
	if err != nil {
		return notKnown(c, admitted, err)
	}
	if out != nil {
		if err = out.fetch(c.Context, cl, v); err != nil && asJSON {
			v.Status, v.ExitCode = audit.StatusError, codeFailed
			v.Reason += "; but " + oneLine(err.Error())
			v.Remedy = "get them with `proctor outputs " + v.Run + "`"
		}
	}
	if asJSON {
		if perr := printJSON(v); perr != nil {
			return perr
		}
	} else {
		tails(v, stdout, stderr)
		fmt.Fprintln(os.Stderr, "proctor:", summary(v, time.Since(started), out))
	}
	if err != nil {
		return err
	}
	return exitWith(v.ExitCode, "")
}

// notRun reports a run that did not take place; an agent that asked for JSON gets a verdict
// all the same.
func notRun(c *cli.Context, err error) error { return notKnown(c, "", err) }

// notKnown is for when there may be a record, of that run, but its verdict did not come.
func notKnown(c *cli.Context, run string, err error) error {
	if _, told := errors.AsType[*exitError](err); told || !c.Bool("json") {
		return err
	}
	var e *api.Error
	v := &audit.Verdict{Run: run, Status: audit.StatusError, ExitCode: codeFailed, Reason: err.Error()}
	if errors.As(err, &e) {
		v.Reason, v.Remedy = e.Message, e.Fix
		v.RetryAfter = e.RetryAfter
		if e.Refused {
			v.Status = audit.StatusRefused
		}
	}
	if perr := printJSON(v); perr != nil {
		return perr
	}
	return exitWith(codeFailed, "")
}

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func runRequest(c *cli.Context) (*api.RunRequest, error) {
	args := c.Args().Slice()
	if len(args) == 0 {
		return nil, usagef("no program: name a file, or - for stdin: see `proctor run --help`")
	}
	file, rest := args[0], args[1:]
	if len(rest) > 0 {
		if rest[0] != "--" {
			return nil, usagef("%q stands after the program: flags go before it, the program's own arguments after --", rest[0])
		}
		rest = rest[1:]
	}
	if err := noEmpty(c, "lang", "image", "output-dir", "profile", "agent", "conversation"); err != nil {
		return nil, err
	}
	req := &api.RunRequest{
		Image: c.String("image"), Language: c.String("lang"),
		Agent: audit.Text(c.String("agent")), Conversation: audit.Text(c.String("conversation")),
		Profile: c.String("profile"), DenyNetwork: c.Bool("deny-network"), Allow: c.StringSlice("allow"),
	}
	for _, a := range rest {
		req.Args = append(req.Args, audit.Text(a))
	}
	if err := runLimits(c, &req.Limits); err != nil {
		return nil, err
	}

	var err error
	if file == "-" {
		if req.Language == "" {
			return nil, usagef("code from stdin: say what it is with --lang, such as --lang python")
		}
		req.Name = "main" + ending(req.Language)
		req.Code, err = readStdin(c.Context)
	} else {
		if req.Language == "" {
			if req.Language = languages[strings.ToLower(filepath.Ext(file))]; req.Language == "" {
				return nil, usagef("%q: its ending does not tell the language: say it with --lang, such as --lang python", file)
			}
		}
		req.Name = filepath.Base(file)
		req.Code, err = readFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("code %w", err)
	}
	switch {
	case len(req.Code) == 0:
		return nil, fmt.Errorf("code %q: is empty: there must be a program in it", file)
	case len(req.Code) > supervisor.MaxCode:
		return nil, fmt.Errorf("code %q: has more than %d MiB: pass data with --input, not in the code", file, supervisor.MaxCode>>20)
	}
	return req, nil
}

// ending is what a file of a language is called, for interpreters that care.
func ending(language string) string {
	var endings []string
	for e, l := range languages {
		if l == language {
			endings = append(endings, e)
		}
	}
	if len(endings) == 0 {
		return ""
	}
	return slices.Min(endings)
}

// runLimits reads the flags that lower or raise limits. Whether they are within what the
// operator allows is the supervisor's to say.
func runLimits(c *cli.Context, l *supervisor.LimitRequest) error {
	for _, f := range []struct {
		name string
		rule string
		read func(text string) bool // says whether it is sensible
	}{
		{"timeout", "a positive duration such as 30s or 5m", func(text string) (ok bool) {
			d, err := time.ParseDuration(text)
			l.Timeout = d
			return err == nil && d > 0
		}},
		{"memory", "a positive size such as 512M or 2G", readSize(&l.Memory)},
		{"cpus", "a positive number such as 0.5 or 2", func(text string) (ok bool) {
			n, err := strconv.ParseFloat(text, 64)
			l.CPUs = n
			return err == nil && n > 0 && !math.IsInf(n, 0)
		}},
		{"cpu-time", "a positive duration such as 30s or 5m", func(text string) (ok bool) {
			d, err := time.ParseDuration(text)
			l.CPUTime = d
			return err == nil && d > 0
		}},
		{"pids", "a positive whole number such as 64", func(text string) (ok bool) {
			n, err := strconv.ParseInt(text, 10, 64)
			l.Processes = n
			return err == nil && n > 0
		}},
		{"audit-events", "a positive whole number such as 100000", func(text string) (ok bool) {
			n, err := strconv.ParseInt(text, 10, 64)
			l.AuditEvents = n
			return err == nil && n > 0
		}},
		{"scratch", "a positive size such as 512M or 2G", readSize(&l.ScratchBytes)},
	} {
		if c.IsSet(f.name) && !f.read(c.String(f.name)) {
			return usagef("--%s %q: write %s", f.name, c.String(f.name), f.rule)
		}
	}
	return nil
}

func readSize(into *int64) func(text string) bool {
	return func(text string) bool {
		n, err := units.RAMInBytes(text)
		*into = n
		return err == nil && n > 0
	}
}

// openRegular opens a file only if it is a regular one; nothing else may block or act.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) { // a socket, or a device that is not there
		return nil, fmt.Errorf("%q: is not a regular file: name one", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w: name a file that you can read", path, cause(err))
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%q: is a directory: name a file", path)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%q: is not a regular file: name one", path)
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

// cause is what went wrong, without the call and the path, which the caller knows better.
func cause(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func readFile(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readCode(f)
}

// readCode reads no more than is needed to know that it is too much.
func readCode(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, supervisor.MaxCode+1))
}

// readStdin can be interrupted, which a read from a terminal or a pipe by itself cannot.
func readStdin(ctx context.Context) ([]byte, error) {
	var code []byte
	done := make(chan error, 1)
	go func() {
		var err error
		code, err = readCode(os.Stdin)
		done <- err
	}()
	select {
	case err := <-done:
		return code, err
	case <-ctx.Done():
		return nil, exitWith(codeInterrupted, "interrupted: nothing was run")
	}
}

// openInputs opens what --input names; the caller closes what is returned, also on error.
func openInputs(c *cli.Context, req *api.RunRequest) (files []*os.File, err error) {
	take := func(name string, f *os.File) error {
		files = append(files, f)
		req.Inputs = append(req.Inputs, audit.Text(name))
		if len(files) > supervisor.MaxInputs {
			return fmt.Errorf("input %q: is one more than the %d that a run may have: pack them into one archive", name, supervisor.MaxInputs)
		}
		return nil
	}
	for _, value := range c.Generic("input").(*textList).values {
		path, name := splitInput(value)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if err := openDirectory(path, name, take); err != nil {
				return files, err
			}
			continue
		}
		f, err := openRegular(path)
		if err != nil {
			return files, fmt.Errorf("input %w", err)
		}
		if err := take(name, f); err != nil {
			return files, err
		}
	}
	return files, nil
}

// openDirectory opens the files beneath a directory, which must have nothing else beneath it.
// Whoever changes it meanwhile can't have one taken from elsewhere.
func openDirectory(dir, name string, take func(string, *os.File) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("input %q: %w: name a directory that you can read", dir, cause(err))
	}
	defer root.Close()
	some := false
	err = fs.WalkDir(root.FS(), ".", func(p string, entry fs.DirEntry, err error) error {
		full := filepath.Join(dir, p)
		switch {
		case err != nil:
			return fmt.Errorf("input %q: %w: name a directory of which you can read everything", full, cause(err))
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("input %q: is a link or a special file: a directory is taken with regular files only: pass a copy without it, or an archive", full)
		}
		f, err := root.OpenFile(filepath.FromSlash(p), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return fmt.Errorf("input %q: %w: name a directory of which you can read everything", full, cause(err))
		}
		some = true
		return take(path.Join(name, p), f)
	})
	if err == nil && !some {
		err = fmt.Errorf("input %q: no file is in it: name one that has some", dir)
	}
	return err
}

// splitInput reads PATH[:NAME]. A file whose path holds a colon is found as it is.
func splitInput(value string) (path, name string) {
	if i := strings.LastIndexByte(value, ':'); i > 0 {
		if _, err := os.Lstat(value); err != nil {
			return value[:i], value[i+1:]
		}
	}
	return value, filepath.Base(value)
}

// tails shows the end of streams that were longer than what is kept.
func tails(v *audit.Verdict, stdout, stderr io.Writer) {
	for _, s := range []struct {
		name string
		out  audit.Output
		w    io.Writer
	}{{"stdout", v.Stdout, stdout}, {"stderr", v.Stderr, stderr}} {
		if s.out.Truncated() > 0 {
			fmt.Fprintf(os.Stderr, "\nproctor: %d bytes of %s are not kept; it ends:\n", s.out.Truncated(), s.name)
			_, _ = s.w.Write(s.out.Tail)
		}
	}
}

// summary is a run in one line.
func summary(v *audit.Verdict, took time.Duration, out *outputDir) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s: %s, exit code %d, in %s: %s", v.Run, v.Status, v.ExitCode, took.Round(time.Millisecond), v.Reason)
	if v.Remedy != "" && v.Status != audit.StatusOK {
		fmt.Fprintf(&b, " — %s", v.Remedy)
	}
	if n := len(v.Outputs); n > 0 {
		where := "get them with `proctor outputs " + v.Run + "`, or add --output-dir DIR"
		if out != nil {
			where = "in " + out.dir
		}
		fmt.Fprintf(&b, "; outputs: %d (%s)", n, where)
	}
	if n := len(v.Skipped) + v.SkippedMore; n > 0 {
		fmt.Fprintf(&b, "; %d entries of /outputs refused, see --json", n)
	}
	if v.Audit.Lost > 0 {
		fmt.Fprintf(&b, "; the record is incomplete, %d events are lost", v.Audit.Lost)
	}
	return oneLine(b.String())
}
