// Package deploy tests what operators load into Prometheus and Grafana.
package deploy

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/outbox"
	"proctor/audit"
	"proctor/supervisor"
	"proctor/supervisor/box"
	"proctor/supervisor/metrics"
	"proctor/supervisor/room"
	"proctor/testenv"
)

// promtool is Debian's, which `make test` unpacks.
func promtool(t *testing.T, dir, stdin string, args ...string) {
	t.Helper()
	path := testenv.Tool(t, filepath.Join(testenv.ModuleRoot(t), "build", "prometheus", "usr", "bin", "promtool"))
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// scraped is what a supervisor that has done something of everything says.
func scraped(t *testing.T) string {
	t.Helper()
	book, err := incident.NewBook(incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	book.Raise(incident.Alarm{Time: time.Now(), Rule: "spike.run", Subject: "x", Severity: incident.Critical})
	m := metrics.New("1")
	m.Ended(&supervisor.Ended{
		Profile: "offline", Phases: map[string]time.Duration{"wait": 1, "run": time.Second},
		Verdict: &audit.Verdict{Status: audit.StatusOK, Egress: audit.Egress{Blocked: []audit.Destination{{Count: 3}}, BlockedMore: 2}},
	})
	m.Delivered("oncall", 100*time.Millisecond)
	handler := m.Handler(metrics.Source{
		Counters: func() (map[string]uint64, error) {
			return map[string]uint64{"runs": 1, "events": 2, "events_lost": 0, "acts_folded": 1, "calls_refused": 1, "program_missed": 0, "files_read": 2, "files_written": 1, "audit_limit": 1, "path_fault": 0}, nil
		},
		Active: func() []string { return []string{"a"} }, Waiting: func() int { return 2 },
		Usage: func() box.Usage { return box.Usage{CPU: time.Second, MemoryPeak: 5, ProcessesPeak: 1} },
		Room:  func() []room.State { return []room.State{{Name: "state", Free: 10, Least: 5, Problem: "full"}} },
		Book:  book, Sinks: func() []outbox.Health {
			return []outbox.Health{{Sink: "oncall", Failing: time.Now(), Refused: true, Sent: 1}}
		},
	}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	text := scraped(t)
	for _, want := range []string{
		`proctor_runs_total{profile="offline",status="ok"} 1`, `proctor_egress_attempts_total{decision="blocked"} 5`, `proctor_alarms_total{rule="spike.run"} 1`,
		`proctor_incidents{severity="critical",state="open"} 1`, `proctor_sink_up{sink="oncall"} 0`, `proctor_sink_refused{sink="oncall"} 1`, `proctor_room_refusing{place="state"} 1`,
		`proctor_runs_waiting 2`, `proctor_running_memory_peak_bytes 5`, `proctor_events_total 2`, `proctor_build_info{version="1"} 1`,
		"# HELP proctor_files_read_total Opens for reading by runs that ended, repeats as well: not how many files.", "# HELP proctor_files_written_total Opens for writing by runs that ended, repeats as well: not how many files.",
		"# HELP proctor_events_total Events of runs that ended: numbers that were given out, those of lost events as well.",
		"# HELP proctor_audit_limit_total Events past the limit of their run's record, which is a setting: lost by rule, not for a failure.",
		"# HELP proctor_path_fault_total What the kernel's programs could not do as they should: path_fault.",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is not said", want)
		}
	}
	promtool(t, t.TempDir(), text, "check", "metrics")
}

func TestRules(t *testing.T) {
	promtool(t, "prometheus", "", "check", "rules", "proctor.rules.yml")
	promtool(t, "prometheus", "", "test", "rules", "proctor.rules.test.yml")
}

var metric = regexp.MustCompile(`\b(?:proctor|process)_[a-z_]+`)

// Rules and dashboard ask for what there is.
func TestNamesExist(t *testing.T) {
	text := scraped(t)
	dashboard, err := os.ReadFile("grafana/proctor.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Error("a panel shows nothing")
		}
	}
	rules, err := os.ReadFile("prometheus/proctor.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, "expr:") {
			all = append(all, line)
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d expressions", len(all))
	}
	for _, expr := range all {
		for _, name := range metric.FindAllString(expr, -1) {
			if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
				t.Errorf("%s asks for %s, which there is not", expr, name)
			}
		}
	}
}
