package oracle

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

// These are tests of the oracle: that it finds what differs, and nothing else.

// boxFiles is a file system of links and scripts.
type boxFiles struct {
	links   map[string]string
	scripts map[string][]string
}

func (f boxFiles) resolve(path string) (string, error) {
	if path == "/gone" || strings.HasPrefix(path, "/gone/") {
		return "", errors.New("not there")
	}
	if to, ok := f.links[path]; ok {
		return to, nil
	}
	return path, nil
}

func (f boxFiles) shebang(path string) ([]string, error) { return f.scripts[path], nil }

var testFiles = boxFiles{
	links:   map[string]string{"/bin/sh": "/usr/bin/dash", "/scratch/./script": "/scratch/script"},
	scripts: map[string][]string{"/scratch/script": {"/bin/sh", "-e"}},
}

var text = regexp.MustCompile(`\B'[^']*'|<(/[^>]*)>`)

// traced is a trace, written with its strings and paths in the clear: 'text' and <path>.
func traced(t *testing.T, lines string) []strace.Step {
	t.Helper()
	lines = text.ReplaceAllStringFunc(lines, func(s string) string {
		var hex strings.Builder
		for _, b := range []byte(s[1 : len(s)-1]) {
			fmt.Fprintf(&hex, `\x%02x`, b)
		}
		if s[0] == '<' {
			return "<" + hex.String() + ">"
		}
		return `"` + hex.String() + `"`
	})
	steps, err := strace.Read(strings.NewReader(lines))
	must(t, err)
	return steps
}

const story = `100 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 2 /* 101 in strace's PID NS */
101 chdir('/scratch') = 0
101 execve('./script', ['script', 'a'], ['A=b']) = 0
101 openat(AT_FDCWD</scratch>, 'data', O_RDONLY|O_CLOEXEC) = 3</scratch/data>
101 openat(AT_FDCWD</scratch>, 'data', O_RDONLY|O_CLOEXEC) = 4</scratch/data>
101 openat(AT_FDCWD</scratch>, '../none', O_RDWR|O_CREAT|O_TRUNC, 0666) = -1 ENOENT (No such file or directory)
101 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD, tls=0x7f) = 3 /* 102 in strace's PID NS */
102 openat(AT_FDCWD</scratch>, '/proc/self/fd/9', O_WRONLY|O_APPEND) = 5</tmp/x>(deleted)
102 connect(6<TCP:[11]>, {sa_family=AF_INET, sin_port=htons(4660), sin_addr=inet_addr('192.0.2.1')}, 16) = -1 EPERM (Operation not permitted)
101 vfork( <unfinished ...>
103 execve('/proc/self/exe', ['tool'], []) = 0
101 <... vfork resumed>) = 4 /* 103 in strace's PID NS */
103 +++ killed by SIGTERM +++
102 +++ exited with 0 +++
101 +++ exited with 3 +++
100 +++ exited with 3 +++
`

// record is of the story.
func record() []audit.Event {
	first := func(kind audit.Kind) audit.Event { return by(2, 101, 0, kind) }
	thread := func(kind audit.Kind) audit.Event { return by(2, 101, 3, kind) }
	read := &audit.Open{Path: "/scratch/data", Access: audit.AccessRead}
	return []audit.Event{
		with(by(1, 100, 0, audit.KindFork), &audit.Fork{Child: 2, ChildHost: 101}),
		with(first(audit.KindExec), &audit.Exec{File: "/usr/bin/dash", Argv: []audit.Text{"/bin/sh", "-e", "./script", "a"}}),
		with(first(audit.KindOpen), read),
		with(first(audit.KindOpen), read),
		with(first(audit.KindOpen), &audit.Open{Path: "../none", Dir: "/scratch", Access: audit.AccessBoth, Flags: []string{"create", "truncate"}, Errno: "ENOENT", Unresolved: true}),
		with(thread(audit.KindOpen), &audit.Open{Path: "/tmp/x", Access: audit.AccessWrite, Flags: []string{"append"}, Deleted: true}),
		with(thread(audit.KindConnect), &audit.Network{Protocol: "tcp", Address: outside, Port: 4660, Decision: audit.Blocked, Rule: "no network granted"}),
		with(first(audit.KindFork), &audit.Fork{Child: 4, ChildHost: 103}),
		with(by(4, 103, 0, audit.KindExec), &audit.Exec{File: "/usr/bin/dash", Argv: []audit.Text{"tool"}}),
		with(by(4, 103, 0, audit.KindExit), &audit.Exit{Signal: "SIGTERM"}),
		with(first(audit.KindExit), &audit.Exit{Code: 3}),
		with(by(1, 100, 0, audit.KindExit), &audit.Exit{Code: 3}),
	}
}

// by is an event with what is not compared, too.
func by(pid, host, thread uint32, kind audit.Kind) audit.Event {
	return audit.Event{Run: "r", Seq: 7, Kind: kind, Process: &audit.Process{PID: pid, PPID: 1, HostID: host, Thread: thread, Comm: "name"}}
}

func with(e audit.Event, detail any) audit.Event {
	switch d := detail.(type) {
	case *audit.Open:
		e.Open = d
	case *audit.Exec:
		e.Exec = d
	case *audit.Fork:
		e.Fork = d
	case *audit.Exit:
		e.Exit = d
	case *audit.Network:
		e.Net = d
	}
	return e
}

func TestCompareAgrees(t *testing.T) {
	c, err := compare(newWorld(100, testFiles), traced(t, story), record())
	must(t, err)
	if lines, granted := c.differences(); len(lines) > 0 || granted > 0 {
		t.Errorf("%d granted, differences:\n%s", granted, strings.Join(lines, "\n"))
	}
	if want := "connect 1/1, exec 2/2, exit 3/3, fork 2/2, open 4/4"; c.String() != want {
		t.Errorf("%s, want %s", c, want)
	}
}

// A record that lacks one act, has one too many or tells one wrongly is found out.
func TestCompareFinds(t *testing.T) {
	steps := traced(t, story)
	check := func(what string, events []audit.Event, missing, invented int) {
		t.Helper()
		c, err := compare(newWorld(100, testFiles), steps, events)
		must(t, err)
		var m, i int
		lines, granted := c.differences()
		for _, line := range lines {
			if strings.HasPrefix(line, "not recorded") {
				m++
			}
			if strings.HasPrefix(line, "invented") {
				i++
			}
		}
		if m != missing || i != invented || granted != 0 {
			t.Errorf("%s: %d not recorded, %d invented, %d granted:\n%s", what, m, i, granted, strings.Join(lines, "\n"))
		}
	}
	for i, e := range record() {
		check(fmt.Sprintf("without %d %s", i, e.Kind), slices.Delete(record(), i, i+1), 1, 0)
		check(fmt.Sprintf("%d %s twice", i, e.Kind), append(record(), e), 0, 1)
	}
	for name, change := range map[string]func(e []audit.Event){
		"child":       func(e []audit.Event) { e[0].Fork.ChildHost = 9 },
		"file":        func(e []audit.Event) { e[1].Exec.File = "/bin/sh" },
		"argument":    func(e []audit.Event) { e[1].Exec.Argv[3] = "b" },
		"path":        func(e []audit.Event) { e[4].Open.Path = "../nine" },
		"access":      func(e []audit.Event) { e[4].Open.Access = audit.AccessRead },
		"flags":       func(e []audit.Event) { e[4].Open.Flags = nil },
		"error":       func(e []audit.Event) { e[4].Open.Errno = "EACCES" },
		"deleted":     func(e []audit.Event) { e[5].Open.Deleted = false },
		"thread":      func(e []audit.Event) { e[5].Process.Thread = 0 },
		"process":     func(e []audit.Event) { e[5].Process.HostID = 102 },
		"decision":    func(e []audit.Event) { e[6].Net.Decision = audit.Allowed },
		"port":        func(e []audit.Event) { e[6].Net.Port = 0x3412 },
		"signal":      func(e []audit.Event) { e[9].Exit.Signal = "SIGKILL" },
		"code":        func(e []audit.Event) { e[10].Exit.Code = 0 },
		"one of many": func(e []audit.Event) { e[2].Open = &audit.Open{Path: "/scratch/data", Access: audit.AccessWrite} },
	} {
		events := record()
		change(events)
		check(name, events, 1, 1)
	}
}

// What became of a call that its process did not survive, the tracer cannot say.
func TestCompareCutShort(t *testing.T) {
	steps := traced(t, "100 openat(AT_FDCWD</>, 'x', O_RDONLY <unfinished ...>\n100 +++ killed by SIGKILL +++\n")
	exit := with(by(1, 100, 0, audit.KindExit), &audit.Exit{Signal: "SIGKILL"})
	open := with(by(1, 100, 0, audit.KindOpen), &audit.Open{Path: "/x", Access: audit.AccessRead})
	skipped := with(by(1, 100, 0, audit.KindOpen), &audit.Open{Path: "y", Access: audit.AccessRead, Errno: "ENOSYS", Unresolved: true})
	notMade := with(by(1, 100, 0, audit.KindExec), &audit.Exec{File: "/bin/sleep", Errno: "ENOSYS"})
	made := with(by(1, 100, 0, audit.KindExec), &audit.Exec{File: "/bin/sleep", Errno: "ENOENT"})
	for i, tt := range []struct {
		events        []audit.Event
		want, granted int
	}{
		{[]audit.Event{exit}, 0, 0},
		{[]audit.Event{exit, notMade}, 0, 1},
		{[]audit.Event{exit, notMade, notMade}, 1, 1},
		{[]audit.Event{exit, made}, 1, 0},
		{[]audit.Event{exit, open}, 0, 1},
		{[]audit.Event{exit, open, open}, 1, 1},
		{[]audit.Event{exit, open, skipped}, 0, 2},
		{[]audit.Event{exit, open, skipped, skipped}, 1, 2},
		{[]audit.Event{exit, with(by(2, 101, 0, audit.KindOpen), open.Open)}, 1, 0},
	} {
		c, err := compare(newWorld(100, testFiles), steps, tt.events)
		must(t, err)
		if lines, granted := c.differences(); len(lines) != tt.want || granted != tt.granted {
			t.Errorf("%d: %d granted, %q", i, granted, lines)
		}
	}
}

// A child can act before its parent is told of it. It is the child of that call all the same,
// with what it has done meanwhile.
func TestCompareChildIsFaster(t *testing.T) {
	steps := traced(t, "100 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>\n"+
		"101 chdir('/d') = 0\n"+
		"100 <... clone resumed>) = 2 /* 101 in strace's PID NS */\n"+
		"101 openat(AT_FDCWD</d>, 'none', O_RDONLY) = -1 ENOENT (No such file or directory)\n")
	fork := with(by(1, 100, 0, audit.KindFork), &audit.Fork{Child: 2, ChildHost: 101})
	open := with(by(2, 101, 0, audit.KindOpen), &audit.Open{Path: "none", Dir: "/d", Access: audit.AccessRead, Errno: "ENOENT", Unresolved: true})
	c, err := compare(newWorld(100, testFiles), steps, []audit.Event{fork, open})
	must(t, err)
	if lines, _ := c.differences(); len(lines) != 0 {
		t.Errorf("%q", lines)
	}
}

// What made a thread can stand behind all that the thread did, and so can what made its parent.
func TestCompareGrandchildIsFaster(t *testing.T) {
	const clone = "clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = "
	for name, acts := range map[string]string{
		"gone": "102 +++ exited with 3 +++\n",
		"acts": "102 openat(AT_FDCWD</>, 'none', O_RDONLY) = -1 ENOENT (No such file or directory)\n102 +++ exited with 3 +++\n",
		"ends": "102 +++ exited with 3 +++\n",
	} {
		child := "3 /* 102 in strace's PID NS */"
		if name == "gone" {
			child = "3" // the tracer finds nobody of that number
		}
		steps := traced(t, acts+"101 "+clone+child+"\n100 "+clone+"2 /* 101 in strace's PID NS */\n101 +++ exited with 0 +++\n")
		events := []audit.Event{
			with(by(1, 100, 0, audit.KindFork), &audit.Fork{Child: 2, ChildHost: 101}),
			with(by(2, 101, 0, audit.KindFork), &audit.Fork{Child: 3, ChildHost: 102}),
			with(by(3, 102, 0, audit.KindExit), &audit.Exit{Code: 3}),
			with(by(2, 101, 0, audit.KindExit), &audit.Exit{}),
		}
		if name == "acts" {
			events = append(events, with(by(3, 102, 0, audit.KindOpen), &audit.Open{Path: "none", Dir: "/", Access: audit.AccessRead, Errno: "ENOENT", Unresolved: true}))
		}
		c, err := compare(newWorld(100, testFiles), steps, events)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if lines, _ := c.differences(); len(lines) != 0 {
			t.Errorf("%s: %q", name, lines)
		}
	}
}

// A thread that comes from nowhere means that the trace is not whole.
func TestCompareRefuses(t *testing.T) {
	for _, lines := range []string{
		"7 openat(AT_FDCWD</>, 'x', O_RDONLY) = 3</x>\n",
		"7 +++ exited with 0 +++\n",
		"100 openat(AT_FDCWD</>) = 3</x>\n",
		"100 execve('/x') = 0\n",
		"100 execve('/x', ['a'...], []) = 0\n",
		"100 connect(3<SMC:[7]>, {sa_family=AF_INET}, 16) = 0\n",
		"100 connect(3<TCP:[7]>, {sa_family=AF_X25}, 16) = 0\n",
		"100 sendto(3<UDP:[7]>, 'x') = 1\n",
	} {
		if c, err := compare(newWorld(100, testFiles), traced(t, lines), nil); err == nil {
			t.Errorf("%s was taken: %s", lines, c)
		}
	}
}

func TestExpectedOpens(t *testing.T) {
	for call, want := range map[string]*audit.Open{
		"open('a', O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</a>":           {Path: "/a", Access: audit.AccessWrite, Flags: []string{"create", "exclusive"}},
		"creat('a', 0600) = 3</a>":                                   {Path: "/a", Access: audit.AccessWrite, Flags: []string{"create", "truncate"}},
		"openat(5</d>, 'a', O_RDONLY|O_PATH|O_DIRECTORY) = 3</d/a>":  {Path: "/d/a", Access: audit.AccessPath, Flags: []string{"directory"}},
		"openat(AT_FDCWD</>, 'a', O_RDWR|O_TMPFILE, 0600) = 3</a>":   {Path: "/a", Access: audit.AccessBoth, Flags: []string{"tmpfile"}},
		"openat2(5</d>, 'a', {flags=O_WRONLY, resolve=0}, 24) = 3<>": {Access: audit.AccessWrite, Truncated: true},
		"openat2(5</d>, 'a', 0x10, 24) = -1 EFAULT (Bad address)":    {Path: "a", Dir: "/d", Access: audit.AccessRead, Errno: "EFAULT", Unresolved: true},
		"open(0x10, O_RDONLY) = -1 EFAULT (Bad address)":             {Dir: "/", Access: audit.AccessRead, Errno: "EFAULT", Unresolved: true, Truncated: true},
		"open('f', O_RDONLY) = ? ERESTARTSYS (To be restarted)":      {Path: "f", Dir: "/", Access: audit.AccessRead, Errno: "ERESTARTSYS", Unresolved: true},
		"memfd_create('x', MFD_CLOEXEC) = 3</memfd:x>(deleted)":      {Path: "/memfd:x", Access: audit.AccessBoth, Flags: []string{"memfd"}, Deleted: true},
		"open('f', O_RDONLY) = ?":                                    nil,
	} {
		var got *audit.Open
		for _, e := range expected(t, opens, call) {
			got = e.Open
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", call, diff)
		}
	}
}

// expected are the events that must be recorded of calls of init.
func expected(t *testing.T, c comparer, calls ...string) []audit.Event {
	t.Helper()
	w := newWorld(100, testFiles)
	var events []audit.Event
	for _, s := range traced(t, "100 "+strings.Join(calls, "\n100 ")) {
		a, err := w.actor(s)
		must(t, err)
		some, err := c.expect(w, a, s)
		must(t, err)
		events = append(events, some...)
	}
	return events
}

func TestExpectedExecs(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	for call, want := range map[string]*audit.Exec{
		"execve('/bin/sh', ['-sh'], []) = 0":                                 {File: "/usr/bin/dash", Argv: []audit.Text{"-sh"}},
		"execve('/bin/sh', [], []) = 0":                                      {File: "/usr/bin/dash", Argv: []audit.Text{""}},
		"execve('/bin/sh', NULL, NULL) = 0":                                  {File: "/usr/bin/dash", Argv: []audit.Text{""}},
		"execve('/gone/x', ['a'], []) = 0":                                   {File: "/gone/x", Argv: []audit.Text{"a"}},
		"execve('/scratch/./script', ['', 'b'], []) = 0":                     {File: "/usr/bin/dash", Argv: []audit.Text{"/bin/sh", "-e", "/scratch/./script", "b"}},
		"execveat(3</bin>, 'sh', ['a'], NULL, 0) = 0":                        {File: "/usr/bin/dash", Argv: []audit.Text{"a"}},
		"execveat(3</m>(deleted), '', ['a'], NULL, AT_EMPTY_PATH) = 0":       {File: "/m", Argv: []audit.Text{"a"}, Deleted: true},
		"execve('/x', ['" + long + "', '" + long + "'], []) = 0":             {File: "/x", Argv: []audit.Text{audit.Text(long), audit.Text(long[:32768-20_001])}, ArgvBytes: 40_002},
		"execve('x', ['x'], []) = -1 ENOENT (No such file or directory)":     {File: "x", Errno: "ENOENT"},
		"execveat(3</m>, 'x', ['x'], [], 0) = -1 EACCES (Permission denied)": {File: "x", Errno: "EACCES"},
		"execve(NULL, ['x'], []) = -1 EFAULT (Bad address)":                  {Errno: "EFAULT", Truncated: true},
	} {
		var got *audit.Exec
		for _, e := range expected(t, execs, call) {
			got = e.Exec
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.80s (-want +got):\n%.2000s", call, diff)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for head, want := range map[string][]string{
		"#!/bin/sh\nx":             {"/bin/sh"},
		"#! \t/bin/sh -e  x \t\ny": {"/bin/sh", "-e  x"},
		"#!/usr/bin/env":           {"/usr/bin/env"},
		"#!/a\tb c\n":              {"/a", "b c"},
		"\x7fELF":                  nil,
		"#":                        nil,
	} {
		if got := interpreter([]byte(head)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
}

// A program that nobody lists would not be watched.
func TestProgramsAreListed(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	must(t, err)
	var files, listed []string
	for _, e := range entries {
		files = append(files, e.Name())
	}
	for _, p := range programs {
		listed = append(listed, p.file)
		if p.language() == "" {
			t.Errorf("nothing runs %s", p.file)
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(files, listed); diff != "" {
		t.Errorf("testdata and the list differ:\n%s", diff)
	}
}
