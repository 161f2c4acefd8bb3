package main_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/audit"
	"proctor/testenv"
	"proctor/testenv/outside"
)

// A world is what there is outside of runs: two servers that take down what they are asked.
type world struct {
	*outside.World
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
	w := &world{World: outside.New(t, map[string][]netip.Addr{
		"api.example": {apiAddress}, "other.example": {otherAddress}, "a.files.example": {apiAddress}, "nobody.example": {netip.MustParseAddr("127.77.0.9")},
	})}
	for host, at := range map[string]netip.Addr{"api.example": apiAddress, "other.example": otherAddress} {
		w.ServeHTTP(t, at, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(host, rw, r) }), host, "*.files.example")
	}
	return w
}

func (w *world) serve(host string, rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.requests = append(w.requests, fmt.Sprintf("%s: %s %s%s auth=%q %d bytes", host, r.Method, r.Host, r.URL, r.Header.Get("Authorization"), len(body)))
	w.mu.Unlock()
	switch r.URL.Path {
	case "/echo":
		fmt.Fprintf(rw, "you sent %s", r.Header.Get("Authorization"))
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
    - {cidr: 127.77.0.0/24, ports: [80, 443]}
`

// theSecret is what no run, record or log may hold.
const theSecret = "s3cr3t-of-the-operator-0123456789"

func credentialProfile(secretFile string) string {
	return fmt.Sprintf(`
description: an API with a credential
egress:
  allow:
    - {host: api.example, ports: [80, 443]}
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

// supervisor starts one that knows this world, with the image that has Python.
func (w *world) supervisor(t *testing.T, profiles map[string]string) *supervisor {
	t.Helper()
	config := w.Config(t, profiles)
	sdir := testenv.Dir(t)
	s := describe(t, sdir, pickImages(t, sdir, "python-data", "shell"))
	s.flags = []string{"--config", config}
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
	s := w.supervisor(t, map[string]string{"client": clientProfile, "key": credentialProfile(secretFile)})
	t.Run("credential", func(t *testing.T) { testCredential(t, w, s) })
	t.Run("names", func(t *testing.T) { testNames(t, w, s) })
	t.Run("narrowed", func(t *testing.T) { testNarrowed(t, s) })
	t.Run("requests", func(t *testing.T) { testRequests(t, w, s) })
	t.Run("proxy", func(t *testing.T) { testProxy(t, w, s) })
	t.Run("offline", func(t *testing.T) { testOffline(t, w, s) })
	t.Run("flood", func(t *testing.T) { testFlood(t, s) })
	t.Run("same port", func(t *testing.T) { testSamePort(t, s) })
	t.Run("many", func(t *testing.T) { testMany(t, s) })
	t.Run("gateway", func(t *testing.T) { testGatewayEnds(t, s) })
	t.Run("supervisor", func(t *testing.T) { testSupervisorEnds(t, s) })
	t.Run("orphan", func(t *testing.T) { testOrphan(t, s) })
}

// A gateway outlives no supervisor, even one that can't do anything by itself.
func testOrphan(t *testing.T, s *supervisor) {
	s.background(t, "echo >/scratch/x; while :; do :; done", "--profile", "client")
	pid := gatewayOf(t, s)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.kill()
	state := ""
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ = strings.Cut(string(stat), "(proctor-gateway) ")
		if state == "" || state[0] == 'Z' {
			break
		}
	}
	if state != "" && state[0] != 'Z' {
		t.Errorf("the gateway is still there, in state %c", state[0])
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
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

// Connections that are one act to the kernel are one record each to the gateway, and must not
// make a record without end.
func testMany(t *testing.T, s *supervisor) {
	v := s.verdict(t, "python", attempts+`
a = socket.getaddrinfo("api.example", 443, socket.AF_INET)[0][4]
while True:
    with socket.socket() as s: s.connect(a)
`, "--profile", "client", "--audit-events", "1000", "--timeout", "60s")
	if v.Status != audit.StatusAuditLimit || !strings.Contains(v.Reason, "more than the 1000 recorded acts") {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	n := 0
	for _, e := range s.events(t, v.Run) {
		if e.Flow != nil || e.Query != nil {
			n++
		}
	}
	if n != 1000 || v.Audit.Complete || v.Audit.LostByKind[audit.KindFlow] == 0 {
		t.Errorf("%d events of the gateway's, complete %v, lost %v", n, v.Audit.Complete, v.Audit.LostByKind)
	}
}

func testNames(t *testing.T, w *world, s *supervisor) {
	before, _ := w.seen()
	v := s.verdict(t, "python", attempts+`
attempt("https", lambda: get("https://api.example/x"))
attempt("spelled", lambda: get("https://API.Example/x"))
attempt("http", lambda: get("http://api.example/y"))
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
		"https: hello from api.example", "spelled: hello from api.example", "http: hello from api.example", "wildcard: 443",
		"not granted: "+noName, "look-alike: "+noName, "below: "+noName, "nobody there: URLError <urlopen error [Errno 104] Connection reset by peer>",
		"no such name: "+noName, "another port: PermissionError [Errno 1] Operation not permitted",
		"address: PermissionError [Errno 1] Operation not permitted",
		"another's certificate: SSLError [SSL: TLSV1_UNRECOGNIZED_NAME]…", "peer: True",
	)
	const at = "api.example:80,443"
	checkFlows(t, s.events(t, v.Run),
		"python3 tcp:443 api.example claimed= allowed "+at+" → 127.77.0.1:443",
		"python3 tcp:443 api.example claimed= allowed "+at+" → 127.77.0.1:443",
		"python3 tcp:80 api.example claimed= allowed "+at+" → 127.77.0.1:80",
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
		if !slices.Contains([]string{"api.example", "a.files.example", "nobody.example", "b.files.example"}, name) {
			t.Errorf("%s left the host", name)
		}
	}
	for _, e := range s.events(t, v.Run) {
		if e.Query != nil && (e.Process == nil || e.Process.Comm != "python3") {
			t.Errorf("a question of %+v: %+v", e.Process, e.Query)
		}
	}
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
        t.sendall(b"GET /v1/x HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n")
        return t.recv(4096).split(b"\r\n")[0].decode()
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
	scrubbed := false
	for _, e := range s.events(t, v.Run) {
		scrubbed = scrubbed || e.Scrub != nil && e.Scrub.Credential == "key" && e.Scrub.Name == "api.example"
		if e.Finding != nil {
			t.Errorf("finding %+v", *e.Finding)
		}
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

func testRequests(t *testing.T, w *world, s *supervisor) {
	_, before := w.seen()
	v := s.verdict(t, "python", attempts+`
for what, data in {
    "another host": b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: api.example\r\nHost: other.example\r\n\r\n",
    "absolute": b"GET http://other.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "both lengths": b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no HTTP": b"SSH-2.0-x\r\n",
}.items():
    attempt(what, lambda: raw("api.example", data))
def pipelined():
    with socket.create_connection(("api.example", 80), 10) as s:
        s.sendall(b"GET /first HTTP/1.1\r\nHost: api.example\r\n\r\nGET /second HTTP/1.1\r\nHost: other.example\r\n\r\n")
        data = b""
        while part := s.recv(4096): data += part
        return [l.split(b"\r\n")[0].decode() for l in data.split(b"HTTP/1.1 ")[1:]]
attempt("pipelined", pipelined)
`, "--profile", "client")
	checkLines(t, v, "another host: HTTP/1.1 403 Forbidden", "two hosts: HTTP/1.1 400 Bad Request", "absolute: HTTP/1.1 403 Forbidden",
		"both lengths: HTTP/1.1 400 Bad Request", "no HTTP: …", "pipelined: ['200 OK', '403 Forbidden']")
	_, after := w.seen()
	if got := after[len(before):]; len(got) != 1 || !strings.Contains(got[0], "GET api.example/first") {
		t.Errorf("the outside saw %q", got)
	}
}

// The explicit proxy follows the same rules, and opens nothing else: what it could reach of
// this host are servers on loopback and whatever the tests' own machine has.
func testProxy(t *testing.T, w *world, s *supervisor) {
	canary, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer canary.Close()
	touched := make(chan string, 100)
	go func() {
		for {
			c, err := canary.Accept()
			if err != nil {
				return
			}
			touched <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	port := canary.Addr().(*net.TCPAddr).Port
	v := s.verdict(t, "python", attempts+fmt.Sprintf(`
os.environ["http_proxy"] = os.environ["https_proxy"] = os.environ["PROCTOR_PROXY"]
attempt("https", lambda: get("https://api.example/p"))
attempt("http", lambda: get("http://api.example/p"))
attempt("not granted", lambda: get("https://other.example/"))
address = os.environ["PROCTOR_PROXY"].removeprefix("http://").split(":")
def connect(target):
    with socket.create_connection((address[0], int(address[1])), 10) as s:
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return s.recv(4096).split(b"\r\n")[0].decode()
for host in "127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "169.254.169.254", "192.0.2.1", "api.example@127.0.0.1":
    attempt(host, lambda: connect(f"{host}:%d"))
attempt("granted, another port", lambda: connect("api.example:22"))
attempt("itself", lambda: connect(":".join(address)))
attempt("relative", lambda: raw(address[0], b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", int(address[1])))
`, port), "--profile", "client")
	want := []string{"https: hello from api.example", "http: hello from api.example", "not granted: URLError <urlopen error Tunnel connection failed: 403 Forbidden>"}
	for _, host := range []string{"127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "169.254.169.254", "192.0.2.1"} {
		want = append(want, host+": HTTP/1.1 403 Forbidden")
	}
	want = append(want, "api.example@127.0.0.1: HTTP/1.1 4…", "granted, another port: HTTP/1.1 403 Forbidden", "itself: HTTP/1.1 403 Forbidden", "relative: HTTP/1.1 4…")
	checkLines(t, v, want...)
	select {
	case from := <-touched:
		t.Errorf("the canary was reached from %s", from)
	default:
	}
	for _, e := range s.events(t, v.Run) {
		if e.Finding != nil {
			t.Errorf("finding %+v", *e.Finding)
		}
	}
}

func testOffline(t *testing.T, w *world, s *supervisor) {
	asked, _ := w.seen()
	v := s.verdict(t, "python", attempts+`
attempt("name", lambda: socket.getaddrinfo("files.pythonhosted.org", 443))
attempt("granted elsewhere", lambda: get("https://api.example/"))
def ask(server, proto):
    q = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\3www\4evil\7example\0\0\20\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if proto == "udp" else socket.SOCK_STREAM) as s:
        s.settimeout(5)
        s.connect((server, 53))
        if proto == "tcp": q = len(q).to_bytes(2, "big") + q
        s.send(q)
        a = s.recv(512)
        return (a[2:] if proto == "tcp" else a)[3] & 15
for proto in "udp", "tcp":
    for server in "192.0.2.53", "198.51.100.8":
        attempt(f"{proto} {server}", lambda: ask(server, proto))
attempt("DNS over TLS", lambda: socket.create_connection(("198.51.100.8", 853), 5))
attempt("proxy", lambda: socket.create_connection(("198.18.0.3", 3128), 5))
print(os.environ.get("PROCTOR_PROXY"), os.environ.get("SSL_CERT_FILE"))
`)
	const refused = "PermissionError [Errno 1] Operation not permitted"
	checkLines(t, v, "name: gaierror [Errno -2] Name or service not known", "granted elsewhere: URLError <urlopen error [Errno -2] Name or service not known>",
		"udp 192.0.2.53: 3", "udp 198.51.100.8: "+refused, "tcp 192.0.2.53: 3", "tcp 198.51.100.8: "+refused, "DNS over TLS: "+refused, "proxy: "+refused, "None None")
	if now, _ := w.seen(); len(now) != len(asked) {
		t.Errorf("the resolver of the host was asked for %q", now[len(asked):])
	}
	if !strings.Contains(v.Remedy, "packages come with the image") {
		t.Errorf("remedy %q", v.Remedy)
	}
	n := 0
	for _, e := range s.events(t, v.Run) {
		if e.Query != nil && e.Query.Name == "www.evil.example" && e.Query.Type == "TXT" && e.Query.Decision == audit.Blocked {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d questions are recorded, want 2", n)
	}
}

// A run whose gateway ends, or stands still, is ended and says so.
func testGatewayEnds(t *testing.T, s *supervisor) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			r := s.background(t, "echo >/scratch/x; while :; do :; done", "--profile", "client")
			pid := gatewayOf(t, s)
			began := time.Now()
			if err := syscall.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			v := r.wait(t)
			if v.Status != audit.StatusError || !strings.Contains(v.Reason, "nothing answered for its network") {
				t.Errorf("%s: %s", v.Status, v.Reason)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// With the supervisor killed, its gateways end, and the next one serves again.
func testSupervisorEnds(t *testing.T, s *supervisor) {
	s.background(t, "echo >/scratch/x; while :; do :; done", "--profile", "client")
	pid := gatewayOf(t, s)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Uid:\t(\d{10})\t\d{10}\t\d{10}\t`, `Gid:\t\d{10}\t`, `Groups:\t *\n`, `CapPrm:\t0+\n`, `CapEff:\t0+\n`, `NoNewPrivs:\t1`, `Seccomp:\t2`} {
		if !regexp.MustCompile(want).Match(status) {
			t.Errorf("the gateway's status has no %s:\n%s", want, status)
		}
	}
	if left, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil || len(left) > 40 {
		t.Errorf("the gateway has %d descriptors, %v", len(left), err)
	}
	s.kill()
	eventually(t, 5*time.Second, func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
			return fmt.Errorf("the gateway is still there")
		}
		return nil
	})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	v := s.verdict(t, "python", attempts+`attempt("https", lambda: get("https://api.example/x"))`, "--profile", "client")
	checkLines(t, v, "https: hello from api.example")
}

// gatewayOf is the one gateway that the supervisor has.
func gatewayOf(t *testing.T, s *supervisor) int {
	t.Helper()
	var found []int
	eventually(t, 5*time.Second, func() error {
		found = nil
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
			if err != nil {
				continue
			}
			comm, rest, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(rest)
			if strings.HasSuffix(comm, "(proctor-gateway") && len(fields) > 1 && fields[1] == strconv.Itoa(s.cmd.Process.Pid) {
				found = append(found, pid)
			}
		}
		if len(found) != 1 {
			return fmt.Errorf("gateways %v, want one", found)
		}
		return nil
	})
	return found[0]
}

// What the gateway tells has its place in the record's limit: a loop that connects, of which
// the kernel makes a count, does not fill a disk.
func testFlood(t *testing.T, s *supervisor) {
	v := s.verdict(t, "python", attempts+`
for i in range(4000):
    try: socket.getaddrinfo("evil.example", 443)
    except socket.gaierror: pass
print("not reached")
`, "--profile", "client", "--audit-events", "1000")
	if v.Status != audit.StatusAuditLimit || v.Audit.Complete || len(v.Stdout.Bytes()) != 0 {
		t.Errorf("%s: %s, %+v, %s", v.Status, v.Reason, v.Audit, v.Stdout.Bytes())
	}
	n := 0
	for _, e := range s.events(t, v.Run) {
		if e.Query != nil {
			n++
		}
	}
	if n < 300 || n > 1000 {
		t.Errorf("%d questions are recorded", n)
	}
}
