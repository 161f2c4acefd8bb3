package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// BenchmarkEnd times what comes after a program: from the kernel's record of its end to the end
// of `proctor run`, and until nothing of the run is left on the host.
func BenchmarkEnd(b *testing.B) {
	testenv.Root(b)
	p := testenv.StartProctor(b, testenv.ProctorOptions{})
	client := api.Client{Socket: p.Socket}
	const runs = 60
	for b.Loop() {
		var told, gone []time.Duration
		for i := range runs + 2 {
			cmd := p.Command("run", "--json", "--lang", "sh", "-")
			cmd.Stdin = strings.NewReader("echo done")
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := cmd.Run(); err != nil {
				b.Fatalf("%v: %s", err, out.Bytes())
			}
			clientEnded := time.Now()
			var v audit.Verdict
			if err := json.Unmarshal(out.Bytes(), &v); err != nil {
				b.Fatal(err)
			}
			for left(b, p, v.Run) {
				time.Sleep(500 * time.Microsecond)
			}
			allGone := time.Now()
			var ended time.Time
			err := client.Events(b.Context(), v.Run, func(e audit.Event) error {
				if e.Kind == audit.KindExit {
					ended = e.Time
				}
				return nil
			})
			if err != nil || ended.IsZero() {
				b.Fatalf("the record has no end: %v", err)
			}
			if i >= 2 { // the first two warm caches
				told, gone = append(told, clientEnded.Sub(ended)), append(gone, allGone.Sub(ended))
			}
		}
		b.ReportMetric(milliseconds(median(told)), "verdict-ms")
		b.ReportMetric(milliseconds(median(gone)), "gone-ms")
	}
	b.ReportMetric(0, "ns/op")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// left reports whether the host still has something of a run: its network namespace, its
// workspace, its cgroup, its shim or its snapshot.
func left(b *testing.B, p *testenv.Proctor, run string) bool {
	b.Helper()
	for _, pattern := range []string{
		filepath.Join(p.RunDir, "netns", run), filepath.Join(p.RunDir, "boxes", run), filepath.Join(p.StateDir, "inputs", run),
		filepath.Join("/sys/fs/cgroup", p.Cgroup(b), run), filepath.Join("/sys/fs/cgroup/*", p.Cgroup(b), run),
		filepath.Join(p.RunDir, "containerd", "*", "*", run), // the shim's bundle
	} {
		if found, err := filepath.Glob(pattern); len(found) > 0 || err != nil {
			return true
		}
	}
	return false
}

// sleepers starts runs that do nothing, and waits until their programs say so. They are ended
// with the benchmark.
func sleepers(b *testing.B, p *testenv.Proctor, n int) {
	b.Helper()
	var ready sync.WaitGroup
	for range n {
		cmd := p.Command("run", "--timeout", "10m", "--lang", "sh", "-")
		cmd.Stdin = strings.NewReader("echo up; exec sleep 600")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		ready.Add(1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			line := make([]byte, 3)
			if _, err := out.Read(line); err != nil {
				b.Errorf("a run did not come up: %v", err)
			}
			ready.Done()
			_ = cmd.Wait()
		}()
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
	}
	ready.Wait()
}

// BenchmarkSleepers has a hundred runs that sleep, and reports the supervisor's memory and what
// one run costs: its gateway, its shim, and everything in the box.
func BenchmarkSleepers(b *testing.B) {
	testenv.Root(b)
	const runs = 100
	for b.Loop() {
		p := testenv.StartProctor(b, testenv.ProctorOptions{})
		before := available(b)
		idle := resident(b, p.PID())
		sleepers(b, p, runs)
		time.Sleep(5 * time.Second) // what starting them took is given back
		b.ReportMetric(float64(idle)/1024, "supervisor-idle-MiB")
		b.ReportMetric(float64(resident(b, p.PID()))/1024, "supervisor-MiB")
		b.ReportMetric(float64(before-available(b))/1024/runs, "host-MiB/run")
		for _, name := range []string{"proctor-gateway", "containerd-shim-runc-v2", "proctor-init"} {
			b.ReportMetric(float64(shared(b, p, name))/1024/runs, name+"-MiB/run")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// field is a number of a file of /proc, in KiB.
func field(b *testing.B, file, name string) int64 {
	b.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return 0 // it has just ended
		}
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("%s has no %s", file, name)
	return 0
}

func available(b *testing.B) int64 { return field(b, "/proc/meminfo", "MemAvailable:") }

func resident(b *testing.B, pid int) int64 {
	return field(b, filepath.Join("/proc", strconv.Itoa(pid), "status"), "VmRSS:")
}

// shared is the proportional share of memory of all processes of a program of p's.
func shared(b *testing.B, p *testenv.Proctor, name string) (sum int64) {
	b.Helper()
	binary := filepath.Join(testenv.BinDir(b), name)
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	for _, dir := range all {
		if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil && exe == binary {
			sum += field(b, filepath.Join(dir, "smaps_rollup"), "Pss:")
		}
	}
	return sum
}

// BenchmarkRecovery kills a supervisor that has fifty runs, and times the next from its start
// until it answers: swept, and the records sealed.
func BenchmarkRecovery(b *testing.B) {
	testenv.Root(b)
	const runs = 50
	for b.Loop() {
		dir := testenv.Dir(b)
		first := testenv.StartProctor(b, testenv.ProctorOptions{Dir: dir})
		sleepers(b, first, runs)
		first.Kill()
		began := time.Now()
		second := testenv.StartProctor(b, testenv.ProctorOptions{Dir: dir})
		b.ReportMetric(time.Since(began).Seconds(), "recovery-s")
		out, err := second.Command("audit", "list", "--limit", "100", "-o", "json").Output()
		if n := bytes.Count(out, []byte(`"interrupted"`)); err != nil || n != runs {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				out = exit.Stderr
			}
			b.Fatalf("%d runs were sealed as interrupted, want %d: %v, %.500s", n, runs, err, out)
		}
	}
	b.ReportMetric(0, "ns/op")
}
