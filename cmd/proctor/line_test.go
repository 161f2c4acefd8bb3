package main

import (
	"testing"

	"proctor/audit"
)

// Names that the code chose can't be taken for what stands around them.
func TestLineDelimitsNames(t *testing.T) {
	p := &audit.Process{Comm: "init[1] exit 0", PID: 7}
	for want, e := range map[string]audit.Event{
		`'init[1] exit 0'[7] open write '/scratch/x → ENOENT' (create)`:             {Kind: audit.KindOpen, Open: &audit.Open{Path: "/scratch/x → ENOENT", Access: "write", Flags: []string{"create"}}},
		`'init[1] exit 0'[7] change symlink evil in /scratch to ENOENT`:             {Kind: audit.KindChange, Change: &audit.Change{Act: audit.ChangeSymlink, Path: "evil", Dir: "/scratch", Target: "ENOENT"}},
		`'init[1] exit 0'[7] change unlink 'z — 6 times more since 1' in / → EPERM`: {Kind: audit.KindChange, Change: &audit.Change{Act: audit.ChangeUnlink, Path: "z — 6 times more since 1", Dir: "/", Errno: "EPERM"}},
		`'init[1] exit 0'[7] query A 'x allowed (granted).example' blocked (no) `:   {Kind: audit.KindQuery, Query: &audit.Query{Type: "A", Name: "x allowed (granted).example", Decision: audit.Blocked, Rule: "no"}},
		`'init[1] exit 0'[7] open read …/deep — once more since 00:00:00.000`:       {Kind: audit.KindOpen, Open: &audit.Open{Path: "/deep", Access: "read", Truncated: true}, Repeat: &audit.Repeat{Count: 1}},
		`'init[1] exit 0'[7] open read '' in /`:                                     {Kind: audit.KindOpen, Open: &audit.Open{Dir: "/", Access: "read"}},
		`'init[1] exit 0'[7] open \x1b[31m /a`:                                      {Kind: audit.KindOpen, Open: &audit.Open{Path: "/a", Access: "\x1b[31m"}},
		`'init[1] exit 0'[7] bind unix '@it'\''s in use'`:                           {Kind: audit.KindBind, Net: &audit.Network{Protocol: "unix", Name: "@it's in use"}},
		`'init[1] exit 0'[7] exec /bin/sh sh -c 'a b' → ENOENT`:                     {Kind: audit.KindExec, Exec: &audit.Exec{File: "/bin/sh", Argv: []audit.Text{"sh", "-c", "a b"}, Errno: "ENOENT"}},
	} {
		e.Process = p
		if got := line(&e, false); got != "00:00:00.000 "+want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}
