package main_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
)

// theSecret is what no run, record or log may hold.
const theSecret = "s3cr3t-of-the-operator-0123456789"

// otherSecret is that of another run for the same host.
const otherSecret = "another-secret-9876543210"

func credentialProfile(secretFile string) string {
	return fmt.Sprintf(`
description: an API with a credential
egress:
  allow:
    - {host: api.example, ports: [80, 443], websocket: true}
    - {host: other.example}
    - {cidr: 127.77.0.0/24, ports: [80, 443]}
  credentials:
    - name: key
      host: api.example
      header: Authorization
      format: "Bearer {secret}"
      source: {file: %s}
      methods: [GET, POST]
      paths: ["/v1/*", /echo, /redirect]
`, secretFile)
}

func testCredential(t *testing.T, w *world, s *supervisor) {
	_, before := w.seen()
	v := s.verdict(t, "python", attempts+`
attempt("plain", lambda: get("https://api.example/v1/x"))
attempt("its own", lambda: get("https://api.example/v1/y", Authorization="Bearer mine", Connection="Authorization"))
attempt("echo", lambda: get("https://api.example/echo"))
attempt("another path", lambda: get("https://api.example/admin"))
attempt("hidden path", lambda: get("https://api.example/v1/../admin"))
attempt("another method", lambda: urllib.request.urlopen(urllib.request.Request("https://api.example/v1/x", method="DELETE"), timeout=10))
attempt("http", lambda: get("http://api.example/v1/z"))
attempt("elsewhere", lambda: get("https://other.example/"))
attempt("redirected", lambda: get("https://api.example/redirect"))
def another_host():
    with socket.create_connection(("api.example", 443), 10) as s, ssl.create_default_context().wrap_socket(s, server_hostname="api.example") as t:
        t.sendall(b"GET /v1/w HTTP/1.1\r\nHost: api.example\r\n\r\n")
        while b"hello from api.example" not in t.recv(4096): pass
        t.sendall(b"GET /v1/x HTTP/1.1\r\nHost: other.example\r\n\r\n")
        answer = b""
        while more := t.recv(4096): answer += more
        return answer.split(b"\r\n")[0].decode()
attempt("another host", another_host)
def issuer():
    with socket.create_connection(("api.example", 443), 10) as s, ssl.create_default_context().wrap_socket(s, server_hostname="api.example") as t:
        return dict(x[0] for x in t.getpeercert()["issuer"])["commonName"].split()[:2]
attempt("issuer", issuer)
import glob
found = []
files = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/mountinfo")
for top in "etc", "run", "tmp", "scratch", "inputs", "code", ".proctor":
    for root, _, names in os.walk("/" + top): files += [os.path.join(root, n) for n in names]
for f in files:
    try:
        if os.path.isfile(f) and b"s3cr3t" + b"-of-the" in open(f, "rb").read(1 << 20): found.append(f)
    except OSError: pass
print("found", found)
`, "--profile", "key", "--timeout", "120s")
	checkLines(t, v,
		"plain: hello from api.example", "its own: hello from api.example", "echo: you sent Bearer [redacted]",
		"another path: HTTPError HTTP Error 403: Forbidden", "hidden path: HTTPError HTTP Error 403: Forbidden",
		"another method: HTTPError HTTP Error 403: Forbidden", "http: hello from api.example", "elsewhere: hello from other.example",
		"redirected: hello from other.example", "another host: HTTP/1.1 421 Misdirected Request", "issuer: ['Proctor', 'run']", "found []")
	_, after := w.seen()
	const with = `auth="Bearer ` + theSecret + `"`
	want := []string{
		"api.example: GET api.example/v1/x " + with, "api.example: GET api.example/v1/y " + with, "api.example: GET api.example/echo " + with,
		`api.example: GET api.example/v1/z auth=""`, `other.example: GET other.example/ auth=""`,
		"api.example: GET api.example/redirect " + with, `other.example: GET other.example/stolen auth=""`,
		"api.example: GET api.example/v1/w " + with,
	}
	var got []string
	for _, r := range after[len(before):] {
		got = append(got, strings.TrimSuffix(r, " 0 bytes"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the outside saw, -want +got:\n%s", diff)
	}
	if t.Failed() {
		t.Log(strings.Join(flows(s.events(t, v.Run)), "\n"))
	}
	scrubbed, claimed := false, false
	for _, e := range s.events(t, v.Run) {
		claimed = claimed || e.Flow != nil && e.Flow.Claimed == "other.example" && e.Flow.Decision == audit.Blocked
		scrubbed = scrubbed || e.Scrub != nil && e.Scrub.Credential == "key" && e.Scrub.Name == "api.example"
		if e.Finding != nil {
			t.Errorf("finding %+v", *e.Finding)
		}
	}
	if !claimed {
		t.Error("no record that a request was for another host")
	}
	if !scrubbed {
		t.Error("no record that the secret was taken out of an answer")
	}
	checkNoSecret(t, s)
}

// checkNoSecret looks for the secret in everything that the supervisor wrote down.
func checkNoSecret(t *testing.T, s *supervisor) {
	t.Helper()
	for _, dir := range []string{filepath.Join(s.dir, "state", "runs"), filepath.Join(s.dir, "log")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(theSecret)) || bytes.Contains(data, []byte(base64.StdEncoding.EncodeToString([]byte(theSecret)))[:30]) {
				t.Errorf("the secret stands in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// P14: two runs ask the same host at the same time, with a credential each, on connections that
// are kept. Neither secret comes with the other's requests.
func testTwoRuns(t *testing.T, w *world, s *supervisor) {
	_, before := w.seen()
	const code = attempts + `
import http.client, time
c = http.client.HTTPSConnection("api.example", timeout=10)
for i in range(100):
    c.request("GET", "/v1/%s" % sys.argv[1])
    c.getresponse().read()
    time.sleep(0.05)
`
	var running sync.WaitGroup
	for profile, who := range map[string]string{"key": "first", "other-key": "second"} {
		running.Go(func() {
			if v := s.verdict(t, "python", code, "--profile", profile, "--", who); v.Status != audit.StatusOK {
				t.Errorf("%s: %s: %s", who, v.Status, v.Stderr.Bytes())
			}
		})
	}
	running.Wait()
	_, after := w.seen()
	seen, turns, last := map[string]int{}, 0, ""
	for _, r := range after[len(before):] {
		who := ""
		for _, one := range []struct{ who, secret string }{{"first", theSecret}, {"second", otherSecret}} {
			if strings.Contains(r, "/v1/"+one.who+" ") && strings.Contains(r, `auth="Bearer `+one.secret+`"`) {
				who = one.who
			}
		}
		if who == "" {
			t.Errorf("the outside saw %s", r)
		}
		if who != last {
			turns, last = turns+1, who
		}
		seen[who]++
	}
	if seen["first"] != 100 || seen["second"] != 100 || turns < 10 {
		t.Errorf("requests %v, with %d turns between the runs: the test shows nothing", seen, turns)
	}
	checkNoSecret(t, s)
}
