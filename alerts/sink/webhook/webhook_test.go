package webhook

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
	"proctor/alerts/sink"
	"proctor/netpolicy/secret"
	"proctor/testenv"
)

func TestSigned(t *testing.T) {
	key := secret.New([]byte("shared secret"))
	var body []byte
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	i := &incident.Incident{
		ID: "abc", Severity: incident.Critical, State: incident.Open, Material: 3, Revision: 5, Alarms: []incident.Alarm{{Text: "many\x1b"}},
		Runs: []incident.Run{{Run: "run-1", Code: "secret code"}}, Deliveries: map[string]*incident.Delivery{"x": {}},
	}
	s := New(Options{URL: server.URL, Secret: key, Client: sink.NewClient(nil)})
	if _, err := s.Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: i}); err != nil {
		t.Fatal(err)
	}
	at, rest, _ := strings.Cut(strings.TrimPrefix(header.Get(SignatureHeader), "t="), ",")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)) > time.Minute {
		t.Errorf("signed at %q", at)
	}
	if want := Sign(key, time.Unix(seconds, 0), body); !strings.HasSuffix(want, rest) || len(rest) != len("v1=")+64 {
		t.Errorf("signature %s, want %s", rest, want)
	}
	if Sign(key, time.Unix(seconds, 0), append(body, ' ')) == Sign(key, time.Unix(seconds, 0), body) || Sign(secret.New([]byte("other")), time.Unix(seconds, 0), body) == Sign(key, time.Unix(seconds, 0), body) {
		t.Error("another body or key has the same signature")
	}
	var b Body
	if err := json.Unmarshal(body, &b); err != nil || b.Version != 1 || b.What != sink.Opened || len(b.Incidents) != 1 || b.Incidents[0].ID != "abc" || b.Incidents[0].Deliveries != nil || b.Incidents[0].Runs[0].Code != "" {
		t.Errorf("%v: %s", err, body)
	}
	if header.Get(DeliveryHeader) != "abc-5-opened" {
		t.Errorf("delivery %q", header.Get(DeliveryHeader))
	}
	if i.Runs[0].Code == "" || i.Deliveries == nil {
		t.Error("the incident was changed")
	}
}

// A delivery's id is the same for each try of a notice, and another's is not.
func TestDelivery(t *testing.T) {
	one := func(id string, revision uint64) *incident.Incident {
		return &incident.Incident{ID: id, Revision: revision, Alarms: []incident.Alarm{{Text: "many"}}, Opened: time.Unix(1, 0)}
	}
	of := func(what sink.What, list ...*incident.Incident) *sink.Notice {
		n := &sink.Notice{What: what, Incident: list[0]}
		if len(list) > 1 {
			n.CatchUp = list
		}
		return n
	}
	seen := map[string]int{}
	for k, n := range []*sink.Notice{
		of(sink.Opened, one("a", 1)), of(sink.Updated, one("a", 1)), of(sink.Updated, one("a", 2)), of(sink.Updated, one("b", 2)),
		of(sink.Opened, one("a", 1), one("b", 1)), of(sink.Opened, one("a", 1), one("b", 2)), of(sink.Opened, one("a", 1), one("b", 1), one("c", 1)),
	} {
		id := delivery(n)
		if before, ok := seen[id]; ok {
			t.Errorf("notices %d and %d are both %s", before, k, id)
		}
		seen[id] = k
		if again := delivery(n); again != id {
			t.Errorf("notice %d is %s, then %s", k, id, again)
		}
	}
	if a, b := delivery(of(sink.Opened, one("a", 1), one("b", 1))), delivery(of(sink.Opened, one("b", 1), one("a", 1))); a != b {
		t.Errorf("in another order it is %s instead of %s", b, a)
	}
	test := of(sink.Test, one("test", 0))
	if first := delivery(test); delivery(test) == first {
		t.Errorf("two tests are both %s", first)
	}
}

// Of many incidents, the most severe come first.
func TestDigest(t *testing.T) {
	var b Body
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	list := []*incident.Incident{
		{ID: "a", Alarms: []incident.Alarm{{Text: "x"}}}, {ID: "b", Severity: incident.Critical, Alarms: []incident.Alarm{{Text: "x"}}},
	}
	_, err := New(Options{URL: server.URL, Secret: secret.New([]byte("shared secret")), Client: sink.NewClient(nil)}).Send(t.Context(), &sink.Notice{What: sink.Opened, Incident: list[0], CatchUp: list})
	if err != nil || len(b.Incidents) != 2 || b.Incidents[0].ID != "b" {
		t.Errorf("%v: %+v", err, b)
	}
}

// What the documentation shows takes what is sent, and nothing else.
func TestDocumentedCheck(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```python\n")
	program, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/alerts.md has no Python")
	}
	key := filepath.Join(t.TempDir(), "soc.key")
	if err := os.WriteFile(key, []byte("shared secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	body := `{"version": 1}`
	for _, test := range []struct {
		header string
		want   string
	}{
		{Sign(secret.New([]byte("shared secret")), time.Now(), []byte(body)), "True"},
		{Sign(secret.New([]byte("another")), time.Now(), []byte(body)), "False"},
		{Sign(secret.New([]byte("shared secret")), time.Now(), []byte(body+" ")), "False"},
		{Sign(secret.New([]byte("shared secret")), time.Now().Add(-time.Hour), []byte(body)), "False"},
	} {
		script := strings.ReplaceAll(program, "/etc/proctor/soc.key", key) + "\nimport sys\nprint(genuine(sys.argv[1], sys.argv[2].encode()))\n"
		out, err := exec.Command("python3", "-c", script, test.header, body).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.header, out, err, test.want)
		}
	}
}
