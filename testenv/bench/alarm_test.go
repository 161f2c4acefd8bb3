package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/alerts/sink"
	"proctor/alerts/sink/webhook"
	"proctor/testenv"
)

// told is when a webhook was told of an incident, and when what it is about happened.
type told struct {
	id           string
	run          string
	what         sink.What
	happened, at time.Time
}

// listener is a supervisor with one sink, which is this process.
func listener(b *testing.B) (*testenv.Proctor, func() []told) {
	b.Helper()
	var mu sync.Mutex
	var all []told
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Now()
		var body webhook.Body
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			b.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, i := range body.Incidents {
			one := told{id: i.ID, what: body.What, happened: i.Alarms[0].Time, at: at}
			if len(i.Runs) > 0 {
				one.run = i.Runs[0].Run
			}
			all = append(all, one)
		}
	}))
	b.Cleanup(server.Close)
	dir := testenv.Dir(b)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		return file
	}
	config := write("proctor.yaml", fmt.Sprintf("alerts: {sinks: {here: {type: webhook, url: %q, secret_file: %s}}}\n", server.URL, write("key", "a shared secret\n")))
	p := testenv.StartProctor(b, testenv.ProctorOptions{Dir: dir, Args: []string{"--config", config}})
	return p, func() []told {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func runCode(b *testing.B, p *testenv.Proctor, agent, language, code string) {
	b.Helper()
	cmd := p.Command("run", "--agent", agent, "--timeout", "5m", "--lang", language, "-")
	cmd.Stdin = strings.NewReader(code)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Errorf("%s: %v: %.300s", agent, err, out)
	}
}

// BenchmarkAlarmLatency has fifty runs that sleep, and others that try a metadata address one after
// another: from that, by the kernel's clock, to the request at the sink.
func BenchmarkAlarmLatency(b *testing.B) {
	testenv.Root(b)
	const each = 24 // more of one caller are one incident
	var took []time.Duration
	for b.Loop() {
		p, all := listener(b)
		sleepers(b, p, 50)
		for n := range each {
			runCode(b, p, fmt.Sprint("agent-", n), "bash", ": >/dev/tcp/169.254.169.254/80; true")
		}
		deadline := time.Now().Add(10 * time.Second)
		for len(all()) < each && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(all()); n != each {
			b.Fatalf("told %d times of %d incidents", n, each)
		}
		for _, t := range all() {
			took = append(took, t.at.Sub(t.happened))
		}
		p.Stop(b)
	}
	slices.Sort(took)
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAlarmFlood has twenty runs make a million attempts, and another make its first
// meanwhile: how often each incident is told, and how soon the other's.
func BenchmarkAlarmFlood(b *testing.B) {
	testenv.Root(b)
	const runs, each = 20, 50_000
	for b.Loop() {
		p, all := listener(b)
		before := resident(b, p.PID())
		code := fmt.Sprintf("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor i in range(%d):\n    try: s.sendto(b'x', ('192.0.2.%%d' %% (i %% 50 + 1), 443))\n    except OSError: pass\n", each)
		var flooding sync.WaitGroup
		for n := range runs {
			flooding.Go(func() { runCode(b, p, fmt.Sprint("flood-", n), "python", code) })
		}
		for deadline := time.Now().Add(time.Minute); len(all()) < 5 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		runCode(b, p, "another", "bash", ": >/dev/tcp/169.254.169.254/80; true")
		flooding.Wait()
		time.Sleep(2 * time.Second)
		out, err := p.Command("alerts", "list", "-o", "json", "--all").Output()
		if err != nil {
			b.Fatal(err)
		}
		var list struct {
			Incidents []struct {
				ID       string
				Attempts uint64
				Runs     []struct{ Agent string }
			}
		}
		if err := json.Unmarshal(out, &list); err != nil {
			b.Fatal(err)
		}
		var attempts uint64
		other := ""
		for _, i := range list.Incidents {
			attempts += i.Attempts
			if i.Runs[0].Agent == "another" {
				other = i.ID
			}
		}
		opened, followed := map[string]int{}, 0
		var late time.Duration
		for _, t := range all() {
			if t.what != sink.Opened {
				followed++
				continue
			}
			opened[t.id]++
			if opened[t.id] > 1 {
				b.Errorf("%s was told twice", t.id)
			}
			if t.id == other {
				late = t.at.Sub(t.happened)
			}
		}
		if other == "" || late == 0 {
			b.Errorf("the other run's incident %q was not told", other)
		}
		b.ReportMetric(float64(attempts), "attempts")
		b.ReportMetric(float64(len(opened)), "incidents")
		b.ReportMetric(float64(followed), "follow-ups")
		b.ReportMetric(ms(late), "other-ms")
		b.ReportMetric(float64(resident(b, p.PID())-before)/(1<<20), "growth-MiB")
	}
	b.ReportMetric(0, "ns/op")
}
