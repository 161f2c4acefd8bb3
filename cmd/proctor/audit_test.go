package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// An act is one line of what a record is asked for.
type act func(*audit.Event) bool

func opened(path string, access audit.Access, errno string) act {
	return func(e *audit.Event) bool {
		return e.Open != nil && string(e.Open.Path) == path && e.Open.Access == access && e.Open.Errno == errno
	}
}

func executed(file string, argv ...string) act {
	return func(e *audit.Event) bool {
		if e.Exec == nil || string(e.Exec.File) != file || len(e.Exec.Argv) != len(argv) {
			return false
		}
		for i, a := range e.Exec.Argv {
			if string(a) != argv[i] {
				return false
			}
		}
		return true
	}
}

func reached(kind audit.Kind, protocol, address string, port uint16, decision audit.Decision) act {
	want := netip.MustParseAddr(address)
	return func(e *audit.Event) bool {
		return e.Kind == kind && e.Net != nil && e.Net.Protocol == protocol && e.Net.Address == want && e.Net.Port == port && e.Net.Decision == decision
	}
}

func TestRecord(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	input := filepath.Join(dir, "data.csv")
	if err := os.WriteFile(input, []byte("a,b\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code := "#!/usr/bin/env python3\r\n# caf\u00e9 \u2028 \x0c\n" + `
import socket, subprocess, os
open("/inputs/data.csv").read()
open("/scratch/out", "w").write("x")
try: open("/proc/1/environ")
except OSError: pass
try: open("/inputs/data.csv", "a")
except OSError: pass
subprocess.run(["/bin/echo", "two words", ""])
def quiet(f):
    try: f()
    except OSError: pass
t4 = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
t6 = lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
u4 = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u6 = lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
quiet(lambda: t4().connect(("198.51.100.7", 4660)))
quiet(lambda: t6().connect(("2001:db8::5", 4661)))
quiet(lambda: t6().connect(("::ffff:203.0.113.9", 4662)))
quiet(lambda: u4().sendto(b"x", ("198.51.100.8", 4663)))
quiet(lambda: u6().sendto(b"x", ("2001:db8::6", 4664)))
quiet(lambda: socket.getaddrinfo("example.test", 80))
quiet(lambda: t4().connect(("127.0.0.1", 4665)))
os._exit(3)
`
	file := filepath.Join(dir, "job.py")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.proctor(t, "", "run", "--json", "--input", input, file, "--", "first", "se cond")
	v := parseVerdict(t, r.stdout)
	if v.ExitCode != 3 {
		t.Fatalf("%s: %s\n%s", v.Status, v.Reason, v.Stderr.Bytes())
	}
	events := s.events(t, v.Run)
	checkRecord(t, v, events)
	for what, is := range map[string]act{
		"the input's reading":     opened("/inputs/data.csv", audit.AccessRead, ""),
		"the output's writing":    opened("/scratch/out", audit.AccessWrite, ""),
		"a read that was refused": opened("/proc/1/environ", audit.AccessRead, "EACCES"),
		"the code's reading":      opened("/code/job.py", audit.AccessRead, ""),
		"the interpreter": func(e *audit.Event) bool {
			return executed("/usr/bin/python3.11", "/usr/bin/python3", "/code/job.py", "first", "se cond")(e)
		},
		"a subprocess": executed("/usr/bin/echo", "/bin/echo", "two words", ""),
		"tcp4":         reached(audit.KindConnect, "tcp", "198.51.100.7", 4660, audit.Blocked),
		"tcp6":         reached(audit.KindConnect, "tcp", "2001:db8::5", 4661, audit.Blocked),
		"mapped":       reached(audit.KindConnect, "tcp", "203.0.113.9", 4662, audit.Blocked),
		"udp4":         reached(audit.KindSend, "udp", "198.51.100.8", 4663, audit.Blocked),
		"udp6":         reached(audit.KindSend, "udp", "2001:db8::6", 4664, audit.Blocked),
		"the question for a name": func(e *audit.Event) bool {
			return e.Net != nil && e.Net.Address.String() == "192.0.2.53" && e.Net.Port == 53 && e.Net.Decision == audit.Allowed && e.Net.Rule == "Proctor's resolver"
		},
		"its answer": func(e *audit.Event) bool {
			return e.Query != nil && e.Query.Name == "example.test" && e.Query.Code == "NXDOMAIN" && e.Query.Decision == audit.Blocked && e.Process != nil && e.Process.Comm == "python3"
		},
		"loopback":            reached(audit.KindConnect, "tcp", "127.0.0.1", 4665, audit.Allowed),
		"the end of the main": func(e *audit.Event) bool { return e.Exit != nil && e.Exit.Code == 3 },
	} {
		if !slices.ContainsFunc(events, func(e audit.Event) bool { return is(&e) }) {
			t.Errorf("%s is not recorded", what)
		}
	}
	if !slices.ContainsFunc(events, func(e audit.Event) bool {
		return e.Open != nil && strings.HasSuffix(string(e.Open.Path), "/inputs/data.csv") && e.Open.Errno == "EACCES" // it is a copy, and root's
	}) {
		t.Error("the attempt to write the input is not recorded as EACCES")
	}
	blocked := map[string]bool{}
	for _, d := range v.Egress.Blocked {
		place := netip.AddrPortFrom(d.Address, d.Port).String()
		if d.Name != "" {
			place = string(d.Name)
		}
		blocked[d.Protocol+" "+place] = true
	}
	for _, want := range []string{"tcp 198.51.100.7:4660", "tcp [2001:db8::5]:4661", "tcp 203.0.113.9:4662", "udp 198.51.100.8:4663", "udp [2001:db8::6]:4664", "dns example.test"} {
		if !blocked[want] {
			t.Errorf("the verdict does not name %s: %v", want, v.Egress.Blocked)
		}
	}
	if len(v.Egress.Allowed) != 0 {
		t.Errorf("the verdict names as allowed: %v", v.Egress.Allowed)
	}

	// What is on disk.
	record := s.recordDir(v.Run)
	if kept, err := os.ReadFile(filepath.Join(record, "code")); err != nil || string(kept) != code {
		t.Errorf("the code is kept as %q, %v", kept, err)
	}
	if r := s.proctor(t, "", "audit", "show", "--code", v.Run); r.stdout != code {
		t.Errorf("audit show --code: %q", r.stdout)
	}
	kept, err := os.ReadFile(filepath.Join(record, "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	var onDisk, told any
	if err := json.Unmarshal(kept, &onDisk); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(r.stdout), &told)
	if fmt.Sprint(onDisk) != fmt.Sprint(told) {
		t.Errorf("verdict.json:\n%v\nthe client was told:\n%v", onDisk, told)
	}
	journal, err := os.ReadFile(filepath.Join(record, "events.jsonl"))
	if err != nil || "sha256:"+hexSum(journal) != v.Audit.Seal {
		t.Errorf("the seal %s is not that of events.jsonl, %v", v.Audit.Seal, err)
	}
	checkModes(t, s, record)
	var request audit.Request
	text, _ := os.ReadFile(filepath.Join(record, "request.json"))
	if err := json.Unmarshal(text, &request); err != nil || request.Caller.UID != 0 || request.Code.SHA256 != hexSum([]byte(code)) || len(request.Inputs) != 1 || request.Inputs[0].Bytes != 8 {
		t.Errorf("request.json: %s, %v", text, err)
	}

	// For people.
	show := s.proctor(t, "", "audit", "show", v.Run)
	for _, want := range []string{
		`(?m)^program  job\.py, \d+ bytes`, `(?m)^input    data\.csv, 8 bytes, by copy$`, `exec /usr/bin/python3\.11 /usr/bin/python3 /code/job\.py first 'se cond'`,
		`connect tcp 198\.51\.100\.7:4660 blocked \(no network granted\)`, `connect tcp \[2001:db8::5\]:4661 blocked`, `open read /inputs/data\.csv`,
		`(?m)^verdict  exit, exit code 3: `, `(?m)^record   complete: events=\d+ lost=0 sha256:[0-9a-f]{64}$`,
	} {
		if !regexp.MustCompile(want).MatchString(show.stdout) {
			t.Errorf("audit show has no line like %s:\n%s", want, show.stdout)
		}
	}
	if list := s.proctor(t, "", "audit", "list", "-n", "1"); !regexp.MustCompile(`(?m)^` + v.Run + ` .* exit +3 +python-data +job\.py +\d+ +complete +\d+$`).MatchString(list.stdout) {
		t.Errorf("audit list:\n%s", list.stdout)
	}
}

// checkRecord holds a record to its form.
func checkRecord(t *testing.T, v *audit.Verdict, events []audit.Event) {
	t.Helper()
	if len(events) < 3 || events[0].Kind != audit.KindStart || events[len(events)-1].Kind != audit.KindEnd {
		t.Fatalf("a record of %d events does not begin with a start and end with an end", len(events))
	}
	end := events[len(events)-1].End
	if end.Lost != 0 || end.Status != string(v.Status) || end.Events != v.Audit.Events || end.Reason != v.Reason {
		t.Errorf("end %+v, verdict %s %q %+v", end, v.Status, v.Reason, v.Audit)
	}
	var seqs []uint64
	for _, e := range events[1 : len(events)-1] {
		if e.Run != v.Run {
			t.Errorf("an event of run %s", e.Run)
		}
		if e.Query != nil || e.Flow != nil {
			if e.Seq != 0 {
				t.Errorf("the gateway's word has a number of the kernel's: %+v", e)
			}
			continue
		}
		if e.Process == nil || e.Process.PID == 0 || e.Process.HostID == 0 || e.Time.IsZero() {
			t.Errorf("an event without process or time: %+v", e)
		}
		seqs = append(seqs, e.Seq)
	}
	slices.Sort(seqs)
	for i, n := range seqs {
		if n != uint64(i+1) {
			t.Fatalf("sequence numbers %d…: number %d is missing", seqs[:min(i+1, len(seqs))], i+1)
		}
	}
	if end.Events != uint64(len(seqs)) {
		t.Errorf("the end counts %d events, there are %d", end.Events, len(seqs))
	}
}

// checkModes: records hold what runs read and wrote; they are root's alone.
func checkModes(t *testing.T, s *supervisor, record string) {
	t.Helper()
	for _, path := range append(tree(record), s.dir+"/state/runs") {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Uid != 0 || st.Mode&0o077 != 0 {
			t.Errorf("%s: mode %o, uid %d, %v", path, st.Mode, st.Uid, err)
		}
	}
}

// Whatever the code calls things, a record is one valid line each, the names can be had back,
// and a terminal is not reprogrammed.
func TestHostileNames(t *testing.T) {
	s := root(t)
	names := []string{
		"line\n{\"run\":\"forged\",\"seq\":1,\"kind\":\"end\"}", "\x1b[2J\x1b]0;title\a", "\u2028\u2029\u0085", "\u202egnp.exe", "\xff\xfe\xc3(", `back\x41\\slash`,
		"tab\tand\rreturn", "\u200bzero\u200dwidth", strings.Repeat("\u00fc", 120), "\x7f\x9b31m", " ", "'quote\"",
	}
	var list strings.Builder
	for _, n := range names {
		fmt.Fprintf(&list, "bytes.fromhex(%q),", fmt.Sprintf("%x", n))
	}
	v := s.verdict(t, "python", `
import os, subprocess, ctypes
for n in [`+list.String()+`]:
    open(b"/outputs/" + n, "w").write("x")
    open(b"/outputs/" + n)
    subprocess.run([b"/bin/true", n], env={b"X": n})
    ctypes.CDLL(None).prctl(15, n[:15], 0, 0, 0)
    try: open(b"/nowhere/" + n)
    except OSError: pass
    print(n)
raise SystemExit(n.decode("latin-1"))`)
	journal, err := os.ReadFile(filepath.Join(s.recordDir(v.Run), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(journal) {
		if !json.Valid(line) {
			t.Errorf("no JSON: %q", line)
		}
		if i := bytes.IndexFunc(bytes.TrimSuffix(line, []byte("\n")), unsafeRune); i >= 0 {
			t.Errorf("a control character at byte %d of %q", i, line)
		}
	}
	events := s.events(t, v.Run)
	checkRecord(t, v, events)
	for _, n := range names {
		for what, is := range map[string]act{
			"write":   opened("/outputs/"+n, audit.AccessWrite, ""),
			"read":    opened("/outputs/"+n, audit.AccessRead, ""),
			"failure": opened("/nowhere/"+n, audit.AccessRead, "ENOENT"),
			"exec":    executed("/usr/bin/true", "/bin/true", n),
		} {
			count := 0
			for i := range events {
				if is(&events[i]) {
					count++
				}
			}
			if count != 1 {
				t.Errorf("the %s of %q is recorded %d times", what, n, count)
			}
		}
		if !slices.ContainsFunc(v.Outputs, func(o audit.OutputFile) bool { return string(o.Name) == n }) {
			t.Errorf("the verdict does not name the output %q", n)
		}
	}
	for _, args := range [][]string{{"audit", "show", v.Run}, {"audit", "show", "-o", "json", v.Run}, {"audit", "list"}, {"audit", "list", "-o", "json"}, {"status"}} {
		r := s.proctor(t, "", args...)
		for line := range strings.Lines(r.stdout) {
			if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), unsafeRune); i >= 0 || strings.HasPrefix(line, `{"run":"forged"`) {
				t.Errorf("%q prints %q", args, line)
			}
		}
	}
}

// unsafeRune is what moves a cursor, or hides or reorders text.
func unsafeRune(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == '\ufeff'
}

// Two runs at once, followed live.
func TestTail(t *testing.T) {
	s := root(t)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			cmd := s.command(t.Context(), "audit", "tail", "-f", "-o", format)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var lines []string
			done := make(chan struct{})
			go func() {
				defer close(done)
				for scan := bufio.NewScanner(out); scan.Scan(); {
					mu.Lock()
					lines = append(lines, scan.Text())
					mu.Unlock()
				}
			}()
			has := func(parts ...string) bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.ContainsFunc(lines, func(l string) bool {
					return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(l, p) })
				})
			}
			// The reader is there once a run is seen at all.
			eventually(t, 60*time.Second, func() error {
				s.verdict(t, "sh", "true")
				if !has("start") {
					return fmt.Errorf("a run that was followed is not shown")
				}
				return nil
			})
			clients := make([]*supervisorRun, 2)
			for i := range clients {
				clients[i] = s.background(t, fmt.Sprintf("cat /etc/hostname > /scratch/live%d-%s; echo up; while :; do sleep 0.05; done", i, format))
			}
			for i, c := range clients {
				eventually(t, 20*time.Second, func() error {
					if !has(c.run, fmt.Sprintf("/scratch/live%d-%s", i, format)) {
						return fmt.Errorf("what run %d does is not shown while it goes on", i)
					}
					return nil
				})
			}
			for _, c := range clients {
				if r := s.proctor(t, "", "kill", c.run); r.code != 0 {
					t.Errorf("kill: %s", r.stderr)
				}
			}
			for _, c := range clients {
				if v := c.wait(t); v.Status != audit.StatusKilled || v.ExitCode != 137 || !strings.Contains(v.Reason, "proctor kill") {
					t.Errorf("%s, code %d: %s", v.Status, v.ExitCode, v.Reason)
				}
				eventually(t, 10*time.Second, func() error {
					if !has(c.run, "end", "killed") {
						return fmt.Errorf("the end is not shown")
					}
					return nil
				})
			}
			_ = cmd.Process.Signal(os.Interrupt)
			<-done
			if err := cmd.Wait(); err != nil {
				t.Errorf("tail, interrupted: %v", err)
			}
			for _, l := range lines {
				if format == "json" && !json.Valid([]byte(l)) {
					t.Errorf("no JSON: %q", l)
				}
			}
		})
	}
}

// A cgroup below the parent that nobody watches is refused everything, loopback too.
func TestUnwatchedCgroup(t *testing.T) {
	s := root(t)
	roots, _ := filepath.Glob("/sys/fs/cgroup/unified/" + s.group)
	if len(roots) == 0 {
		roots = []string{"/sys/fs/cgroup/" + s.group}
	}
	group := filepath.Join(roots[0], "stray")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, 5*time.Second, func() error { return os.Remove(group) })
	})
	for _, address := range []string{"127.0.0.1", "::1"} {
		for _, kind := range []string{"SOCK_STREAM", "SOCK_DGRAM"} {
			out := inCgroup(t, group, address, kind)
			if !strings.Contains(out, "EPERM") {
				t.Errorf("%s %s from a cgroup that is not watched: %s", kind, address, out)
			}
		}
	}
}
