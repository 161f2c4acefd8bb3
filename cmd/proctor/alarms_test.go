package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// A run that tries too often what is not granted is a line in the log, once; one that tries
// less often is none.
func TestAlarms(t *testing.T) {
	s := root(t)
	const attempts = `
import socket, sys
for i in range(int(sys.argv[1])):
    try: socket.create_connection(('192.0.2.%d' % (i + 1), 443), 1)
    except OSError: pass
`
	few := s.verdict(t, "python", attempts, "--", "24")
	many := s.verdict(t, "python", attempts, "--", "40")
	eventually(t, 5*time.Second, func() error {
		data, err := os.ReadFile(s.logFile())
		if err != nil {
			return err
		}
		lines := 0
		for line := range strings.Lines(string(data)) {
			if !strings.Contains(line, " msg=alarm ") {
				continue
			}
			if strings.Contains(line, few.Run) {
				t.Fatalf("24 attempts are too many: %s", line)
			}
			if strings.Contains(line, " rule=spike.run ") && strings.Contains(line, "subject="+many.Run) && strings.Contains(line, "25 blocked attempts") {
				lines++
			}
		}
		if lines != 1 {
			return fmt.Errorf("%d lines of the log say so", lines)
		}
		return nil
	})
	if out := s.proctor(t, "", "status", "-o", "json").stdout; !strings.Contains(out, `"alarms":`) || strings.Contains(out, `"alarms":0`) || strings.Contains(out, `"alarms": 0`) {
		t.Errorf("status has no alarms: %s", out)
	}
}

// A receiver takes webhooks, while it is up.
type receiver struct {
	t       *testing.T
	address string
	server  *http.Server

	mu     sync.Mutex
	status int // of answers; 0: 200
	got    []received
}

type received struct {
	at   time.Time
	path string
	body string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	r.serve(l)
	t.Cleanup(r.down)
	return r
}

func (r *receiver) serve(l net.Listener) {
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, received{time.Now(), req.URL.Path, string(body)})
		if r.status != 0 {
			w.WriteHeader(r.status)
		}
		_, _ = io.WriteString(w, "ok") // as Slack answers
	})}
	go func() { _ = r.server.Serve(l) }()
}

func (r *receiver) down() { _ = r.server.Close() }

func (r *receiver) up() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.serve(l)
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// about are the messages at a path that have a text.
func (r *receiver) about(path, text string) (list []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.got {
		if one.path == path && strings.Contains(one.body, text) {
			list = append(list, one)
		}
	}
	return list
}

// alarmed is a supervisor that tells a receiver, as two sinks.
func alarmed(t *testing.T, more string) (*supervisor, *receiver) {
	t.Helper()
	testenv.Root(t)
	r := newReceiver(t)
	s := prepareSupervisor(t)
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(s.dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	hook, key := write("hook.url", "http://"+r.address+"/slack\n"), write("soc.key", "shared secret\n")
	config := write("proctor.yaml", fmt.Sprintf("alerts:\n  sinks:\n    team: {type: slack-webhook, url_file: %s}\n    soc: {type: webhook, url: \"http://%s/soc\", secret_file: %s}\n  runbook: https://runbook.example/proctor\n%s", hook, r.address, key, more))
	s.flags = append(s.flags, "--config", config)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// list is what alerts list says.
func list(t *testing.T, s *supervisor) (all api.Alerts) {
	t.Helper()
	out := s.proctor(t, "", "alerts", "list", "-o", "json").stdout
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

// burst is code that tries so many addresses at once.
const burst = "for ((i = 1; i <= %d; i++)); do : >/dev/tcp/192.0.2.$i/443; done 2>/dev/null; true # <!channel> `x`"

// On-call hears once of who did what where; a restart in an outage loses nothing.
func TestAlarmsAreTold(t *testing.T) {
	testenv.LeakCheck(t)
	s, r := alarmed(t, "")
	v := s.verdict(t, "bash", fmt.Sprintf(burst, 40), "--agent", "agent <!here> \x1b[31m")
	eventually(t, 10*time.Second, func() error {
		if len(r.about("/slack", v.Run)) == 0 || len(r.about("/soc", v.Run)) == 0 {
			return errors.New("nobody was told")
		}
		return nil
	})
	first := r.about("/slack", v.Run)[0]
	for _, want := range []string{v.Run, "25 blocked attempts of one run", "192.0.2.1", "agent \\u0026lt;!here\\u0026gt;", "shell, offline", "proctor audit show", "https://runbook.example/proctor", "for ((i = 1; i \\u0026lt;= 40; i++))", "/bin/bash"} {
		if !strings.Contains(first.body, want) {
			t.Errorf("%q is not said in %s", want, first.body)
		}
	}
	for _, bad := range []string{"<!", "u003c", "\x1b", "u001b"} {
		if strings.Contains(first.body, bad) {
			t.Errorf("%q is in %s", bad, first.body)
		}
	}

	known := list(t, s)
	if len(known.Incidents) != 1 || known.Incidents[0].Runs[0].Run != v.Run || len(known.Sinks) != 2 {
		t.Fatalf("%+v", known)
	}
	id := known.Incidents[0].ID
	if out := s.proctor(t, "", "alerts", "show", id).stdout; !strings.Contains(out, v.Run) || !strings.Contains(out, "WARNING (open)") {
		t.Errorf("show: %s", out)
	}
	eventually(t, 5*time.Second, func() error {
		if r := list(t, s).Incidents[0].Runs[0]; !r.Ended {
			return fmt.Errorf("the run is said to go on: %+v", r)
		}
		return nil
	})
	if got := s.proctor(t, "", "alerts", "ack", "--note", "I look", id[:8]); got.code != 0 {
		t.Errorf("ack: %+v", got)
	}
	if out := s.proctor(t, "", "alerts", "list").stdout; !strings.Contains(out, "acknowledged") || !strings.Contains(out, id) {
		t.Errorf("list: %s", out)
	}
	if got := s.proctor(t, "", "alerts", "test"); got.code != 0 || len(r.about("/slack", "TEST: ")) != 1 {
		t.Errorf("test: %+v, %d told", got, len(r.about("/slack", "TEST: ")))
	}

	// Nobody listens, something happens, and the supervisor is killed.
	r.down()
	other := s.verdict(t, "bash", strings.ReplaceAll(fmt.Sprintf(burst, 40), "192.0.2", "198.51.100"), "--agent", "other")
	eventually(t, 10*time.Second, func() error {
		if out := s.proctor(t, "", "alerts", "list").stdout; !strings.Contains(out, "SINK team does not work") {
			return fmt.Errorf("list: %s", out)
		}
		return nil
	})
	s.kill()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	r.up()
	eventually(t, 60*time.Second, func() error {
		if len(r.about("/slack", other.Run)) == 0 || len(r.about("/soc", other.Run)) == 0 {
			return errors.New("it was lost")
		}
		return nil
	})
	time.Sleep(2 * time.Second)
	for _, path := range []string{"/slack", "/soc"} {
		for _, run := range []string{v.Run, other.Run} {
			if n := len(r.about(path, run)); n != 1 {
				t.Errorf("%s was told %d times of %s", path, n, run)
			}
		}
	}
	eventually(t, 20*time.Second, s.empty)
}

// What a run did in the moments before its supervisor was killed is told, and that nobody saw what
// came after.
func TestAlarmsOfInterruptedRuns(t *testing.T) {
	testenv.LeakCheck(t)
	s, r := alarmed(t, "")
	run := s.background(t, `: >/scratch/begun; bash -c ': >/dev/tcp/169.254.169.254/80'; while :; do sleep 1; done`)
	eventually(t, 10*time.Second, func() error {
		events, err := os.ReadFile(filepath.Join(s.recordDir(run.run), "events.jsonl"))
		if err == nil && !strings.Contains(string(events), "169.254.169.254") {
			err = errors.New("not recorded")
		}
		return err
	})
	s.kill()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		for _, path := range []string{"/slack", "/soc"} {
			if len(r.about(path, "metadata service: 169.254.169.254")) == 0 {
				return fmt.Errorf("%s was not told", path)
			}
		}
		// Follow-ups take their time.
		if out := s.proctor(t, "", "alerts", "show", "-o", "json", list(t, s).Incidents[0].ID).stdout; !strings.Contains(out, "the supervisor ended while it ran") {
			return fmt.Errorf("the incident does not say that it was not seen to its end: %s", out)
		}
		return nil
	})
	if n := len(r.about("/slack", "25 blocked attempts")); n != 0 {
		t.Errorf("%d messages say what was not", n)
	}
	eventually(t, 20*time.Second, s.empty)
}

// A sink that refuses is shouted about elsewhere, and works again after a test that gets through.
func TestSinkThatRefuses(t *testing.T) {
	testenv.LeakCheck(t)
	s, r := alarmed(t, "  routes: [{sinks: [team]}, {severity: critical, sinks: [soc]}]\n")
	r.answer(http.StatusForbidden)
	s.verdict(t, "bash", fmt.Sprintf(burst, 30))
	eventually(t, 10*time.Second, func() error {
		if out := s.proctor(t, "", "alerts", "list").stdout; !strings.Contains(out, "SINK team REFUSES") || !strings.Contains(out, "Nobody is told of incidents at team") {
			return fmt.Errorf("list: %s", out)
		}
		return nil
	})
	if out := s.proctor(t, "", "doctor", "--state-dir", s.dir+"/state", "--run-dir", s.dir+"/run").stdout; !strings.Contains(out, "team") {
		t.Errorf("doctor does not say so: %s", out)
	}
	r.answer(http.StatusOK)
	for _, name := range []string{"team", "soc"} {
		if got := s.proctor(t, "", "alerts", "test", "--sink", name); got.code != 0 {
			t.Errorf("test: %+v", got)
		}
	}
	eventually(t, 10*time.Second, func() error {
		if len(r.about("/slack", "25 blocked attempts")) < 2 {
			return errors.New("not told after it was mended")
		}
		return nil
	})
	if got := s.proctor(t, "", "alerts", "test", "--sink", "none"); got.code == 0 || !strings.Contains(got.stderr, `no sink "none"`) {
		t.Errorf("test of none: %+v", got)
	}
}

// Auditors and operators alone see and change alarms, and what is asked wrongly is refused with why.
func TestAlertsCommandRefuses(t *testing.T) {
	s := root(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"alerts", "silence", "--for", "2h", "--reason", "r"}, "a silence of everything"},
		{[]string{"alerts", "silence", "--for", "x", "--reason", "r", "--caller", "a"}, `--for "x"`},
		{[]string{"alerts", "silence", "--for", "1000d", "--reason", "r", "--caller", "0"}, "at most 2160h"},
		{[]string{"alerts", "silence", "--for", "1h", "--caller", "0"}, "--reason: say why"},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--caller", "no such user"}, `caller "no such user" is no user`},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--rule", "spike.nosuch"}, `there is no rule "spike.nosuch": there are sign.`},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--incident", "nosuch"}, "there is no such incident"},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--destination", "*.a.example"}, `write "a.example"`},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--destination", "a.example:443"}, `write "a.example"`},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--destination", "300.1.1.1"}, "is no address"},
		{[]string{"alerts", "silence", "--for", "1h", "--reason", "r", "--destination", "http://a b/"}, "neither a host's name"},
		{[]string{"alerts", "ack", "nothing-like-it"}, "there is no such incident"},
		{[]string{"alerts", "expire", "../../status"}, "there is no such incident"},
		{[]string{"alerts", "test"}, "no sinks are configured"},
		{[]string{"alerts", "wrong"}, "is not known"},
		{[]string{"alerts", "replay"}, "name records"},
		{[]string{"alerts", "replay", s.dir + "/run"}, "no records are there"},
	} {
		if got := s.proctor(t, "", test.args...); got.code == 0 || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%q: code %d, %s", test.args, got.code, got.stderr)
		}
	}
}

// What rules would have found is found again in the records.
func TestReplay(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "bash", fmt.Sprintf(burst, 30))
	if v.Status != audit.StatusOK && v.Status != audit.StatusExit {
		t.Fatalf("%s: %s", v.Status, v.Reason)
	}
	record := s.dir + "/state/runs/" + v.Run
	var found []incident.Incident
	if out := s.proctor(t, "", "alerts", "replay", "-o", "json", record); json.Unmarshal([]byte(out.stdout), &found) != nil || len(found) != 1 || found[0].Runs[0].Run != v.Run || found[0].Attempts < 25 {
		t.Errorf("%+v", out)
	}
	rules := filepath.Join(testenv.Dir(t), "rules.yaml")
	if err := os.WriteFile(rules, []byte("alerts: {run: {threshold: 1000}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.proctor(t, "", "alerts", "replay", "--rules", rules, record); out.code != 0 || !strings.Contains(out.stdout, ", 0 incidents") {
		t.Errorf("with other rules: %+v", out)
	}
}

// Metrics have what runs did.
func TestMetricsOfRuns(t *testing.T) {
	s := root(t)
	s.verdict(t, "sh", "exit 3")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", s.socket)
	}}}
	resp, err := client.Get("http://proctor/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, text)
	}
	for _, want := range []string{`proctor_runs_total{profile="offline",status="exit"} `, "proctor_events_total ", "proctor_events_lost_total 0", `proctor_run_phase_seconds_count{phase="prepare"} `, "proctor_runs_active 0"} {
		if !strings.Contains(string(text), "\n"+want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
