package supervisor

import (
	"slices"
	"strings"
	"testing"

	"proctor/audit"
)

func TestLineage(t *testing.T) {
	l := lineage{}
	who := func(pid uint32, start uint64) *audit.Process { return &audit.Process{PID: pid, Start: start} }
	connect := func(pid uint32, start uint64) string {
		e := &audit.Event{Kind: audit.KindConnect, Process: who(pid, start), Net: &audit.Network{}}
		l.add(e)
		if len(e.Process.Argv) == 0 {
			return string(e.Process.File)
		}
		return string(e.Process.File) + " " + string(e.Process.Argv[0])
	}
	exec := func(pid uint32, start uint64, file, argv0 audit.Text, errno string) {
		l.add(&audit.Event{Kind: audit.KindExec, Process: who(pid, start), Exec: &audit.Exec{File: file, Argv: []audit.Text{argv0}, Errno: errno}})
	}
	if got := connect(2, 10); got != "" {
		t.Errorf("before its exec: %q", got)
	}
	exec(2, 10, "/bin/sh", "sh", "")
	exec(2, 10, "/bin/none", "none", "ENOENT")
	if got := connect(2, 10); got != "/bin/sh sh" {
		t.Errorf("after a failed exec: %q", got)
	}
	l.add(&audit.Event{Kind: audit.KindFork, Process: who(2, 10), Fork: &audit.Fork{Child: 3, Start: 20}})
	if got := connect(3, 20); got != "/bin/sh sh" {
		t.Errorf("child: %q", got)
	}
	exec(3, 20, "/usr/bin/python3", "innocent", "")
	if got := connect(3, 20) + ", " + connect(2, 10); got != "/usr/bin/python3 innocent, /bin/sh sh" {
		t.Errorf("child and parent: %q", got)
	}
	// The number is used again, before and after the end of its first owner is told.
	if got := connect(3, 30); got != "" {
		t.Errorf("another process of that number: %q", got)
	}
	l.add(&audit.Event{Kind: audit.KindExit, Process: who(3, 20), Exit: &audit.Exit{}})
	if got := connect(3, 20); got != "" || len(l) != 1 {
		t.Errorf("after its end: %q, %d known", got, len(l))
	}
}

func TestShort(t *testing.T) {
	long := audit.Text(strings.Repeat("x", argvBytes))
	for _, tt := range []struct{ argv, want []audit.Text }{
		{nil, nil},
		{[]audit.Text{"a", "", "b"}, []audit.Text{"a", "", "b"}},
		{[]audit.Text{long}, []audit.Text{long}},
		{[]audit.Text{long, "a"}, []audit.Text{long, "…"}},
		{[]audit.Text{long + "y"}, []audit.Text{long + "…"}},
		{[]audit.Text{"a", long}, []audit.Text{"a", long[2:] + "…"}},
	} {
		if got := short(tt.argv); !slices.Equal(got, tt.want) {
			t.Errorf("%d arguments: %d bytes, want %d", len(tt.argv), len(strings.Join(texts(got), " ")), len(strings.Join(texts(tt.want), " ")))
		}
	}
}

func texts(list []audit.Text) (out []string) {
	for _, s := range list {
		out = append(out, string(s))
	}
	return out
}
