package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"proctor/api"
	"proctor/audit"
)

var auditVerifyCommand = &cli.Command{
	Name: "verify", Usage: "check that a record is what was written", ArgsUsage: "RUN|DIR",
	Description: `Reads all of a record, asked of the supervisor or in a directory (its own below the state
directory, or a copy; written with a slash, as ./DIR), and needs no supervisor for the latter. The
events are compared with the seal in the verdict (the SHA-256 of events.jsonl), with their numbers
and with their end; the code and the outputs with their hashes. Exit code 1: something is not as
it was.

Who can change all files of a record can make them agree. What holds against them is a seal that
was kept elsewhere: it is in the verdict that the caller got, and in the supervisor's log.`,
	OnUsageError: usageError, Action: auditVerify,
	Flags: []cli.Flag{socketFlag, outputFormat, &cli.StringFlag{Name: "seal", Usage: "compare with `SEAL` (sha256:…), which was kept elsewhere"}},
}

var sealSyntax = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func auditVerify(c *cli.Context) error {
	asJSON, err := jsonWanted(c)
	if err != nil {
		return err
	}
	what, err := oneRun(c)
	if err != nil {
		return err
	}
	seal := c.String("seal")
	if c.IsSet("seal") && !sealSyntax.MatchString(seal) {
		return usagef("--seal %.100q: it is sha256: and 64 hexadecimal digits, as in a verdict's audit.seal", seal)
	}
	var src audit.Source = audit.RecordAt(what)
	if !strings.Contains(what, "/") {
		cl, err := client(c)
		if err != nil {
			return err
		}
		if src, err = ofSupervisor(c.Context, cl, what); err != nil {
			return err
		}
	}
	got, err := audit.Verify(src, seal)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(got)
	} else {
		err = printVerification(got, seal != "")
	}
	if err == nil && !got.Intact {
		return exitWith(1, fmt.Sprintf("%s is not what was written", oneLine(what)))
	}
	return err
}

func printVerification(v *audit.Verification, elsewhere bool) error {
	for _, p := range v.Problems {
		fmt.Printf("problem  %s\n", oneLine(p))
	}
	if !v.Intact {
		return nil
	}
	with := "with its verdict"
	switch {
	case elsewhere:
		with += " and with the seal that was given"
	case !v.Ended:
		with = "with itself: it has not ended"
	}
	complete := "not complete"
	if v.Complete {
		complete = "complete"
	}
	_, err := fmt.Printf("run      %s\nrecord   agrees %s, %s: events=%d %s\noutputs  %d as they were\n", printable(v.Run), with, complete, v.Held.Events, v.Seal, v.Outputs)
	return err
}

// A remote has a supervisor's record of a run.
type remote struct {
	ctx  context.Context
	cl   *api.Client
	info *api.RunInfo
}

func ofSupervisor(ctx context.Context, cl *api.Client, run string) (*remote, error) {
	info, err := cl.Show(ctx, run)
	if err != nil {
		return nil, err
	}
	return &remote{ctx, cl, info}, nil
}

func (r *remote) Request() (*audit.Request, error) {
	if r.info.Request == nil {
		return nil, fmt.Errorf("run %s: its request is missing: the record is damaged", r.info.Run)
	}
	return r.info.Request, nil
}

func (r *remote) Verdict() (*audit.Verdict, error) { return r.info.Verdict, nil }

func (r *remote) Open(elem ...string) (io.ReadCloser, error) {
	f, err := r.cl.Open(r.ctx, r.info.Run, elem...)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == http.StatusNotFound {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return f, err
}
