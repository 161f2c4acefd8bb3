package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/audit"
	"proctor/testenv"
	"proctor/testenv/outside"
)

// A world is what there is outside of runs, in a namespace of its own: two servers that take down
// what they are asked.
type world struct {
	*outside.World
	netns    string // file of the namespace where it is, and the supervisor with it
	within   func(f func() error)
	mu       sync.Mutex
	requests []string // host, method, path, and what stands in Authorization
}

// The addresses that this world's servers have.
var (
	apiAddress   = netip.MustParseAddr("127.77.0.1")
	otherAddress = netip.MustParseAddr("127.77.0.2")
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	w.netns, w.within = outsideOf(t)
	w.within(func() error { w.populate(t); return nil })
	return w
}

func (w *world) populate(t *testing.T) {
	t.Helper()
	w.World = outside.New(t, map[string][]netip.Addr{
		"api.example": {apiAddress}, "other.example": {otherAddress}, "a.files.example": {apiAddress}, "nobody.example": {netip.MustParseAddr("127.77.0.9")},
		"inside.example": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"both.example":   {netip.MustParseAddr("127.0.0.1"), apiAddress},
	})
	for host, at := range map[string]netip.Addr{"api.example": apiAddress, "other.example": otherAddress} {
		w.ServeHTTP(t, at, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(host, rw, r) }), host, "*.files.example", "both.example")
	}
}

func (w *world) serve(host string, rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.requests = append(w.requests, fmt.Sprintf("%s: %s %s%s auth=%q %d bytes", host, r.Method, r.Host, r.URL, r.Header.Get("Authorization"), len(body)))
	w.mu.Unlock()
	switch r.URL.Path {
	case "/echo":
		fmt.Fprintf(rw, "you sent %s", r.Header.Get("Authorization"))
	case "/v1/socket":
		echoSocket(rw, r)
	case "/redirect":
		http.Redirect(rw, r, "https://other.example/stolen", http.StatusFound)
	default:
		fmt.Fprintf(rw, "hello from %s", host)
	}
}

// seen returns what the outside was asked so far.
func (w *world) seen() (asked, requests []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Asked(), slices.Clone(w.requests)
}

const clientProfile = `
description: what the tests of the network may reach
egress:
  allow:
    - {host: api.example, ports: [80, 443]}
    - {host: "*.files.example"}
    - {host: nobody.example}
    - {host: inside.example, ports: [80, 443]}
    - {host: both.example}
    - {cidr: 127.77.0.0/24, ports: [80, 443]}
`

// supervisor starts one that knows this world, with the image that has Python.
func (w *world) supervisor(t *testing.T, profiles map[string]string) *supervisor {
	t.Helper()
	config := w.Config(t, profiles)
	sdir := testenv.Dir(t)
	s := describe(t, sdir, pickImages(t, sdir, "python-data", "shell"))
	s.flags, s.netns = []string{"--config", config}, w.netns
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		s.unmountAll(t)
	})
	s.showLog(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func flows(events []audit.Event) (lines []string) {
	for _, e := range events {
		if f := e.Flow; f != nil {
			who := "nobody"
			if e.Process != nil {
				who = string(e.Process.Comm)
			}
			lines = append(lines, fmt.Sprintf("%s %s:%d %s claimed=%s %s %s → %s", who, f.Protocol, f.Port, f.Name, f.Claimed, f.Decision, f.Rule, f.Upstream))
			if f.Error != "" && !strings.HasPrefix(f.Error, "connection reset by client") {
				lines[len(lines)-1] += ": " + f.Error
			}
		}
		if e.Finding != nil {
			lines = append(lines, fmt.Sprintf("finding: %+v", *e.Finding))
		}
	}
	return lines
}

// attempts is Python that prints a line for each thing that it tries.
const attempts = `
import json, os, socket, ssl, sys, urllib.request
def attempt(what, f):
    try: print(what + ":", f(), flush=True)
    except Exception as e: print(what + ":", type(e).__name__, e, flush=True)
def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as r:
        return r.read().decode()
def tls(name, server_hostname, port=443):
    with socket.create_connection((name, port), 10) as s:
        with ssl.create_default_context().wrap_socket(s, server_hostname=server_hostname) as t:
            return t.getpeername()[1]
def raw(name, data, port=80):
    with socket.create_connection((name, port), 10) as s:
        s.sendall(data)
        return s.recv(4096).split(b"\r\n")[0].decode()
`

// lines compares what a program printed, line by line; a line of want that ends in … stands
// for all that begin so.
func checkLines(t *testing.T, v *audit.Verdict, want ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(string(v.Stdout.Bytes()), "\n"), "\n")
	for i := range max(len(want), len(got)) {
		w, g := "", ""
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if begin, cut := strings.CutSuffix(w, "…"); w != g && !(cut && strings.HasPrefix(g, begin)) {
			t.Errorf("line %d is %q, want %q", i+1, g, w)
		}
	}
	if t.Failed() {
		t.Logf("%s; stderr %s", v.Reason, v.Stderr.Bytes())
	}
}

func checkFlows(t *testing.T, events []audit.Event, want ...string) {
	t.Helper()
	sort := cmpopts.SortSlices(func(a, b string) bool { return a < b }) // a connection is told of when it ends
	if diff := cmp.Diff(want, flows(events), sort); diff != "" {
		t.Errorf("flows, -want +got:\n%s", diff)
	}
}

func TestEgress(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	w := newWorld(t)
	secretFile := filepath.Join(w.Dir, "secret")
	if err := os.WriteFile(secretFile, []byte(theSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	otherFile := filepath.Join(w.Dir, "other-secret")
	if err := os.WriteFile(otherFile, []byte(otherSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.supervisor(t, map[string]string{"client": clientProfile, "key": credentialProfile(secretFile), "other-key": credentialProfile(otherFile)})
	t.Run("credential", func(t *testing.T) { testCredential(t, w, s) })
	t.Run("names", func(t *testing.T) { testNames(t, w, s) })
	t.Run("narrowed", func(t *testing.T) { testNarrowed(t, s) })
	t.Run("requests", func(t *testing.T) { testRequests(t, w, s) })
	t.Run("proxy", func(t *testing.T) { testProxy(t, w, s) })
	t.Run("offline", func(t *testing.T) { testOffline(t, w, s) })
	t.Run("two runs", func(t *testing.T) { testTwoRuns(t, w, s) })
	t.Run("protocols", func(t *testing.T) { testProtocols(t, w, s) })
	t.Run("caps", func(t *testing.T) { testCaps(t, s) })
	t.Run("flood", func(t *testing.T) { testFlood(t, s) })
	t.Run("same port", func(t *testing.T) { testSamePort(t, s) })
	t.Run("many", func(t *testing.T) { testMany(t, s) })
	t.Run("gateway", func(t *testing.T) { testGatewayEnds(t, s) })
	t.Run("supervisor", func(t *testing.T) { testSupervisorEnds(t, s) })
	t.Run("orphan", func(t *testing.T) { testOrphan(t, s) })
}

// One port is that of many sockets: who uses it elsewhere is not taken for who connected.
func testSamePort(t *testing.T, s *supervisor) {
	v := s.verdict(t, "python", attempts+`
import subprocess, time
def connect(source, to):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((source, 5001))
    s.connect(to)
    return s
to = socket.getaddrinfo("api.example", 443, socket.AF_INET)[0][4]
first = connect("", to)
other = """
import socket, sys
open("/proc/self/comm", "w").write("other")
for source, to in ("127.0.0.5", (sys.argv[1], 443)), ("", ("192.0.2.53", 53)):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((source, 5001))
        s.connect(to)
"""
attempt("other", lambda: subprocess.run([sys.executable, "-c", other, to[0]]).returncode)
first.close()
`, "--profile", "client")
	checkLines(t, v, "other: 0")
	var got []string
	for _, e := range s.events(t, v.Run) {
		switch {
		case e.Process == nil:
		case e.Flow != nil:
			got = append(got, "flow: "+string(e.Process.Comm))
		case e.Query != nil && e.Query.Protocol == "tcp":
			got = append(got, "query: "+string(e.Process.Comm))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"flow: other", "flow: python3", "query: other"}, got); diff != "" {
		t.Errorf("who it was, -want +got:\n%s", diff)
	}
}

func testNames(t *testing.T, w *world, s *supervisor) {
	before, _ := w.seen()
	v := s.verdict(t, "python", attempts+`
attempt("https", lambda: get("https://api.example/x"))
attempt("spelled", lambda: get("https://API.Example/x"))
attempt("last dot", lambda: get("http://api.example./x"))
attempt("http", lambda: get("http://api.example/y"))
attempt("inside", lambda: get("https://inside.example/"))
attempt("both", lambda: get("https://both.example/"))
attempt("wildcard", lambda: tls("a.files.example", "a.files.example"))
attempt("not granted", lambda: get("https://other.example/"))
attempt("look-alike", lambda: get("https://xapi.example/"))
attempt("below", lambda: get("https://api.example.other/"))
attempt("nobody there", lambda: get("https://nobody.example/"))
attempt("no such name", lambda: get("https://b.files.example/"))
attempt("another port", lambda: socket.create_connection(("api.example", 22), 5))
attempt("address", lambda: socket.create_connection(("203.0.113.5", 443), 5))
attempt("another's certificate", lambda: tls("api.example", "other.example"))
attempt("peer", lambda: (lambda a: socket.create_connection(a, 5).getpeername() == a)(socket.getaddrinfo("api.example", 443, socket.AF_INET)[0][4]))
`, "--profile", "client")
	const noName = "URLError <urlopen error [Errno -2] Name or service not known>"
	checkLines(t, v,
		"https: hello from api.example", "spelled: hello from api.example", "last dot: hello from api.example", "http: hello from api.example",
		"inside: URLError <urlopen error [Errno 104] Connection reset by peer>", "both: hello from api.example", "wildcard: 443",
		"not granted: "+noName, "look-alike: "+noName, "below: "+noName, "nobody there: URLError <urlopen error [Errno 104] Connection reset by peer>",
		"no such name: "+noName, "another port: PermissionError [Errno 1] Operation not permitted",
		"address: PermissionError [Errno 1] Operation not permitted",
		"another's certificate: SSLError [SSL: TLSV1_UNRECOGNIZED_NAME]…", "peer: True",
	)
	const at, inside = "api.example:80,443", "inside.example is granted, but leads to no public address, and no cidr grant has one that it leads to"
	checkFlows(t, s.events(t, v.Run),
		"python3 tcp:443 api.example claimed= allowed "+at+" → 127.77.0.1:443",
		"python3 tcp:443 api.example claimed= allowed "+at+" → 127.77.0.1:443",
		"python3 tcp:80 api.example claimed= allowed "+at+" → 127.77.0.1:80",
		"python3 tcp:80 api.example claimed= allowed "+at+" → 127.77.0.1:80",
		"python3 tcp:443 inside.example claimed= blocked "+inside+" → 127.0.0.1:443: only addresses that a name may not lead to",
		"python3 tcp:443 both.example claimed= allowed both.example:443 → 127.77.0.1:443",
		"python3 tcp:443 a.files.example claimed= allowed *.files.example:443 → 127.77.0.1:443",
		"python3 tcp:443 nobody.example claimed= allowed nobody.example:443 → invalid AddrPort: connection refused",
		"python3 tcp:443 api.example claimed=other.example blocked the ClientHello is for another name → invalid AddrPort",
		"python3 tcp:443 api.example claimed= allowed "+at+" → invalid AddrPort: the client sent nothing that could be checked",
	)
	blocked := map[string]int64{}
	for _, d := range v.Egress.Blocked {
		blocked[fmt.Sprintf("%s %s:%d %s", d.Name, d.Protocol, d.Port, d.Rule)] += d.Count
	}
	for _, want := range []string{
		"other.example dns:53 other.example is not granted by profile client",
		"xapi.example dns:53 xapi.example is not granted by profile client",
		"api.example.other dns:53 api.example.other is not granted by profile client",
		"api.example tcp:22 api.example is granted on 80 and 443 only",
		" tcp:443 203.0.113.5 is not granted by profile client",
		"api.example tcp:443 the ClientHello is for another name",
		"inside.example tcp:443 " + inside,
	} {
		if blocked[want] == 0 {
			t.Errorf("not listed as blocked: %s", want)
		}
		delete(blocked, want)
	}
	if len(blocked) > 0 {
		t.Errorf("blocked, too: %v", blocked)
	}
	asked, _ := w.seen()
	for _, name := range asked[len(before):] {
		if !slices.Contains([]string{"api.example", "a.files.example", "nobody.example", "b.files.example", "inside.example", "both.example"}, name) {
			t.Errorf("%s left the host", name)
		}
	}
	for _, e := range s.events(t, v.Run) {
		if e.Query != nil && (e.Process == nil || e.Process.Comm != "python3") {
			t.Errorf("a question of %+v: %+v", e.Process, e.Query)
		}
	}
}

func testNarrowed(t *testing.T, s *supervisor) {
	code := attempts + `
attempt("api", lambda: get("http://api.example/"))
attempt("files", lambda: tls("a.files.example", "a.files.example"))`
	const noName = "URLError <urlopen error [Errno -2] Name or service not known>"
	v := s.verdict(t, "python", code, "--profile", "client", "--allow", "a.files.example", "--allow", "127.77.0.0/24")
	checkLines(t, v, "api: "+noName, "files: 443")
	v = s.verdict(t, "python", code, "--profile", "client", "--deny-network")
	checkLines(t, v, "api: "+noName, "files: gaierror [Errno -2] Name or service not known")
	for _, flags := range [][]string{{"--profile", "client", "--allow", "other.example"}, {"--profile", "none-such"}, {"--profile", "../client"}, {"--allow", "api.example"}} {
		v = s.verdict(t, "python", code, flags...)
		if v.Status != audit.StatusRefused || v.ExitCode != 125 || v.Remedy == "" {
			t.Errorf("%q: %+v", flags, v)
		}
		t.Log(v.Reason, "—", v.Remedy)
	}
}
