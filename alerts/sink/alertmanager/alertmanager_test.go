package alertmanager

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/message"
	"proctor/alerts/sink"
	"proctor/testenv"
)

// command runs Debian's Alertmanager, which `make test` unpacks. It wants its template below
// /usr/share, where it is in a mount namespace of its own alone: that needs root.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	testenv.Root(t)
	dir := filepath.Join(testenv.ModuleRoot(t), "build", "prometheus", "usr")
	path := filepath.Join(dir, "bin", "prometheus-alertmanager")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no Alertmanager: %v: run scripts/prometheus", err)
	}
	const inside = `mount -t overlay overlay -o "lowerdir=$1/share:/usr/share" /usr/share && shift && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", inside, "sh", dir, path}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A running Alertmanager, which tells a receiver of the test's.
type running struct {
	url string

	mu   sync.Mutex
	told []notification
}

type notification struct {
	Status string `json:"status"`
	Alerts []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"alerts"`
}

func start(t *testing.T) *running {
	t.Helper()
	r := &running{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var n notification
		if err := json.NewDecoder(req.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, n)
	}))
	t.Cleanup(receiver.Close)
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	text := fmt.Sprintf("route: {receiver: r, group_by: ['...'], group_wait: 100ms, group_interval: 200ms, repeat_interval: 1h}\nreceivers: [{name: r, webhook_configs: [{url: %q, send_resolved: true}]}]\n", receiver.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freePort(t)
	r.url = "http://" + address
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := command(t, "--config.file="+config, "--storage.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = log, log
	if err := testenv.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Alertmanager's log:\n%s", text)
		}
	})
	eventually(t, "Alertmanager is ready", func() bool {
		resp, err := http.Get(r.url + "/-/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return r
}

func (r *running) all() []notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A real Alertmanager tells of an incident once, of it growing not again, of another severity as of
// another alert, and of its end.
func TestAlertmanager(t *testing.T) {
	r := start(t)
	s := New(Options{URL: r.url + "/", Client: sink.NewClient(nil), Message: message.Options{Host: "box7", CodeLines: 20}})
	i := &incident.Incident{
		ID: "abc", Severity: incident.Warning, State: incident.Open, Opened: time.Now(), Attempts: 25,
		Alarms:       []incident.Alarm{{Rule: "spike.run", Text: "25 blocked attempts <!channel> {{ .Labels }} \x1b\u202e"}},
		Runs:         []incident.Run{{Run: "run-1", Caller: "1000 (ann)", Profile: "offline", Agent: "a\"b\nc", Code: "print(1)\n\tx"}},
		Destinations: []incident.Tally{{Name: "evil.example", Count: 25}},
	}
	send := func(what sink.What, ref json.RawMessage) json.RawMessage {
		t.Helper()
		ref, err := s.Send(t.Context(), &sink.Notice{What: what, Incident: i, Ref: ref})
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	ref := send(sink.Opened, nil)
	eventually(t, "it is told", func() bool { return len(r.all()) == 1 })
	first := r.all()[0]
	if l := first.Alerts[0].Labels; first.Status != "firing" || l["alertname"] != "ProctorIncident" || l["incident"] != "abc" || l["severity"] != "warning" || l["caller"] != "1000" || l["profile"] != "offline" || l["rule"] != "spike.run" || l["instance"] != "box7" {
		t.Errorf("told %+v", first)
	}
	if a := first.Alerts[0].Annotations; a["see"] != "sudo proctor audit show run-1" || a["destinations"] != "25 × evil.example" || a["code"] != "print(1)\n    x" || a["agent"] != `a"b\nc` {
		t.Errorf("annotations %+v", a)
	}
	i.Attempts = 250
	ref = send(sink.Updated, ref)
	send(sink.Repeated, ref)
	time.Sleep(time.Second)
	if n := len(r.all()); n != 1 {
		t.Errorf("told %d times", n)
	}
	i.Severity = incident.Critical
	ref = send(sink.Updated, ref)
	severities := func(status string) (all []string) {
		for _, n := range r.all() {
			for _, a := range n.Alerts {
				if a.Status == status {
					all = append(all, a.Labels["severity"])
				}
			}
		}
		return all
	}
	eventually(t, "the severity is told", func() bool {
		return slices.Contains(severities("firing"), "critical") && slices.Contains(severities("resolved"), "warning")
	})
	i.State, i.Resolved = incident.Resolved, time.Now()
	send(sink.Resolved, ref)
	eventually(t, "its end is told", func() bool { return slices.Contains(severities("resolved"), "critical") })
}

func TestTest(t *testing.T) {
	r := start(t)
	s := New(Options{URL: r.url, Client: sink.NewClient(nil)})
	i := &incident.Incident{ID: "test", Opened: time.Now(), State: incident.Open, Alarms: []incident.Alarm{{Rule: "test", Text: "this is a test"}}}
	if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Test, Incident: i}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the test is told", func() bool { return len(r.all()) == 1 })
	if l := r.all()[0].Alerts[0].Labels; l["alertname"] != "ProctorTest" {
		t.Errorf("labels %v", l)
	}
}
