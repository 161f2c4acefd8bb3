package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"proctor/audit"
	"proctor/testenv"
)

const (
	atOnce  = 8
	hostile = 5 // one in so many
	warm    = 100
)

// A program is one that runs again and again. statuses are those that it may end with.
type program struct {
	language, code string
	flags          []string
	statuses       []audit.Status
	leave          time.Duration // after which the client is killed; 0: it stays
}

var ordinary = []program{
	{language: "sh", code: "echo hello; echo result >/outputs/r"},
	{language: "python", code: "import json, os\nopen('/scratch/x', 'w').write('x' * 1000)\nprint(json.dumps(sorted(os.listdir('/'))))"},
	{language: "sh", code: "i=0; while [ $i -lt 200 ]; do i=$((i+1)); cat /etc/hostname >/scratch/f$i; done"},
	{language: "sh", code: "exit 3", statuses: []audit.Status{audit.StatusExit}},
}

var attacks = []program{
	{language: "sh", code: "b() { b | b & }; b; sleep 5", flags: []string{"--timeout", "1s"}, statuses: []audit.Status{audit.StatusTimeout, audit.StatusPIDs, audit.StatusExit, audit.StatusOK, audit.StatusAuditLimit}},
	{language: "python", code: "import os\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            import time; time.sleep(60)\n        os._exit(0)\nprint('gone')"},
	{language: "python", code: "x = []\nwhile True: x.append(bytearray(1 << 22))", flags: []string{"--memory", "64M", "--scratch", "1M"}, statuses: []audit.Status{audit.StatusOOM}},
	{language: "sh", code: "while :; do echo x >/scratch/$RANDOM$i; i=$((i+1)); done", flags: []string{"--timeout", "1s"}, statuses: []audit.Status{audit.StatusTimeout, audit.StatusAuditLimit}},
	{language: "sh", code: "dd if=/dev/zero of=/scratch/big bs=1M 2>/dev/null; dd if=/dev/zero of=/outputs/big bs=1M 2>/dev/null; true", flags: []string{"--scratch", "8M"}},
	{language: "sh", code: "yes flood", flags: []string{"--timeout", "1s"}, statuses: []audit.Status{audit.StatusTimeout}},
	{language: "python", code: "import socket\nfor i in range(500):\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    try: s.sendto(b'x', ('192.0.2.1', 53))\n    except OSError: pass\n    try: socket.create_connection(('198.51.100.7', 443), 1)\n    except OSError: pass\n"},
	{language: "python", code: "import socket\nfor i in range(300):\n    try: socket.getaddrinfo('n%d.evil.example' % i, 443)\n    except OSError: pass\n"},
	{language: "python", code: "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor n in range(0, 460):\n    if n not in (0, 1, 3, 15, 34, 35, 56, 57, 58, 60, 61, 62, 200, 231, 234, 270, 271, 23, 7, 130, 128, 435, 424): libc.syscall(n, -1, -1, -1, -1, -1, -1)\n", flags: []string{"--timeout", "2s"},
		statuses: []audit.Status{audit.StatusOK, audit.StatusExit, audit.StatusTimeout, audit.StatusKilled}},
	{language: "sh", code: "kill -STOP $$", flags: []string{"--timeout", "1s"}, statuses: []audit.Status{audit.StatusTimeout}},
	{language: "sh", code: "kill -KILL -1; kill -KILL $$", statuses: []audit.Status{audit.StatusKilled}},
	{language: "sh", code: "while :; do :; done", leave: 300 * time.Millisecond},
	{language: "sh", code: "while :; do :; done", flags: []string{"--cpu-time", "300ms"}, statuses: []audit.Status{audit.StatusCPUTime}},
}

// run runs a program once, and says what is wrong with how it ended.
func (p program) run(s *testenv.Proctor) error {
	cmd := s.Command(append([]string{"run", "--json", "--lang", p.language}, append(p.flags, "-")...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(p.code), &out, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	if p.leave > 0 {
		time.Sleep(p.leave)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil
	}
	_ = cmd.Wait()
	var v audit.Verdict
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		return fmt.Errorf("no verdict (%w): %s", err, said.Bytes())
	}
	for _, s := range p.statuses {
		if v.Status == s {
			return nil
		}
	}
	if p.statuses == nil && v.Status == audit.StatusOK {
		return nil
	}
	return fmt.Errorf("%s: %s", v.Status, v.Reason)
}

// TestSoak is run by `make soak`.
func TestSoak(t *testing.T) {
	testenv.Root(t)
	total, _ := strconv.Atoi(os.Getenv("PROCTOR_SOAK_RUNS"))
	if total == 0 {
		t.Skip("long: set PROCTOR_SOAK_RUNS to how many (make soak does)")
	}
	testenv.LeakCheck(t)
	s := testenv.StartProctor(t, testenv.ProctorOptions{})
	var table strings.Builder
	w := tabwriter.NewWriter(io.MultiWriter(&table, os.Stdout), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "runs\tseconds\t%s\t\n", strings.Join(columns, "\t"))
	began := time.Now()
	row := func(runs int) map[string]int64 {
		settle(t, s)
		c := take(t, s)
		fmt.Fprintf(w, "%d\t%.0f\t", runs, time.Since(began).Seconds())
		for _, name := range columns {
			fmt.Fprintf(w, "%d\t", c[name])
		}
		fmt.Fprintln(w)
		return c
	}
	row(0)
	var wrong mistakes
	batch(s, warm, &wrong)
	first := row(warm)
	var last map[string]int64
	for done := warm; done < total; {
		n := min(total-done, max(total/8, 1))
		batch(s, n, &wrong)
		done += n
		last = row(done)
	}
	w.Flush()
	if last == nil {
		t.Fatalf("%d runs are too few: the first %d warm up", total, warm)
	}
	for _, name := range columns {
		grown := last[name] - first[name]
		allowed := int64(0)
		switch name {
		case "records":
			allowed = int64(total) // it is what they are for
		case "fds", "goroutines":
			allowed = 8 // idle connections
		case "threads":
			allowed = 32 // Go keeps as many as were ever busy at one time, as when a disk is slow
		case "rss-KiB":
			allowed = max(first[name]/5, 16<<10)
		}
		if grown > allowed {
			wrong.add("%s grew from %d to %d", name, first[name], last[name])
		}
	}
	// The supervisor's log comes last in what a failed test prints: the file says it again.
	for _, what := range wrong.list {
		t.Error(what)
		fmt.Fprintln(&table, "FAILED:", what)
	}
	if file := os.Getenv("PROCTOR_SOAK_TABLE"); file != "" {
		if err := os.WriteFile(file, []byte(table.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// mistakes are the first of what went wrong.
type mistakes struct {
	mu   sync.Mutex
	list []string
}

func (m *mistakes) add(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) < 20 {
		m.list = append(m.list, fmt.Sprintf(format, args...))
	}
}

// settle waits until the supervisor has taken everything apart.
func settle(t *testing.T, s *testenv.Proctor) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if entries(s.RunDir+"/netns") == 0 {
			testenv.CollectGarbage(t, s.ContainerdAddress(), s.Cgroup(t))
			time.Sleep(time.Second)
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("something of a run stays")
		}
	}
}

func batch(s *testenv.Proctor, n int, wrong *mistakes) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for next.Add(1) <= int64(n) {
				p := ordinary[rand.IntN(len(ordinary))]
				if rand.IntN(hostile) == 0 {
					p = attacks[rand.IntN(len(attacks))]
				}
				if err := p.run(s); err != nil {
					wrong.add("%.60q: %v", p.code, err)
				}
			}
		})
	}
	running.Wait()
}
