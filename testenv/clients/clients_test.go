package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/testenv"
	"proctor/testenv/outside"
)

const secret = "s3cr3t-of-the-operator-0123456789"

const profile = `
description: what the clients may reach
egress:
  allow:
    - {host: api.example, ports: [80, 443]}
    - {host: key.example}
    - {host: db.example, ports: [5432]}
    - {cidr: 127.77.0.0/24, ports: [80, 443, 5432]}
  credentials:
    - name: key
      host: key.example
      header: Authorization
      format: "Bearer {secret}"
      source: {file: %s}
`

// https is where each client is to come to, and what it is told there: the name that it asked for,
// and whether it had the secret.
func hellos(client string) []string {
	return []string{
		client + " https://api.example/ api.example without", client + " http://api.example/ api.example without",
		client + " https://key.example/ key.example with",
	}
}

func TestClients(t *testing.T) {
	testenv.Root(t)
	dir := os.Getenv("PROCTOR_CLIENTS")
	if dir == "" {
		t.Skip("long: set PROCTOR_CLIENTS to where the image \"clients\" is (make test-clients does)")
	}
	testenv.LeakCheck(t)
	at := netip.MustParseAddr("127.77.0.1")
	w := outside.New(t, map[string][]netip.Addr{"api.example": {at}, "key.example": {at}, "db.example": {at}})
	w.ServeHTTP(t, at, handler(repository(t)), "api.example", "key.example")
	servePostgres(t, netip.AddrPortFrom(at, 5432).String(), w.TLS(t, "db.example"))
	secretFile := filepath.Join(w.Dir, "secret")
	if err := os.WriteFile(secretFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	config := w.Config(t, map[string]string{"clients": fmt.Sprintf(profile, secretFile)})
	p := testenv.StartProctor(t, testenv.ProctorOptions{Args: []string{"--images", dir, "--config", config}})

	t.Run("python", func(t *testing.T) {
		var want []string
		for _, client := range []string{"urllib", "requests", "httpx", "aiohttp"} {
			want = append(append(want, hellos(client)...), client+" refused at once")
		}
		check(t, p, append(want, "peer True"), "testdata/clients.py")
	})
	t.Run("shell", func(t *testing.T) {
		var want []string
		for i := range hellos("") {
			want = append(want, hellos("curl")[i], hellos("wget")[i])
		}
		check(t, p, append(want, "curl http2 2", "curl upload 200", "curl refused at once", "wget refused at once",
			"git refused at once", "psql refused at once", "git ", "hello", "psql 1"), "testdata/clients.bash")
	})
	t.Run("node", func(t *testing.T) {
		check(t, p, append(hellos("node"), "node refused at once ENOTFOUND"), "testdata/clients.js")
	})
	t.Run("java", func(t *testing.T) {
		check(t, p, append(hellos("java"), "java refused at once"), "--lang", "java", "testdata/Clients.java")
	})
	t.Run("go", func(t *testing.T) {
		binary := filepath.Join(testenv.Dir(t), "client")
		build := exec.Command("go", "build", "-o", binary, "testdata/golang/main.go")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		script := filepath.Join(testenv.Dir(t), "run.bash")
		if err := os.WriteFile(script, []byte("cp /inputs/client . && ./client"), 0o600); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, hello := range hellos("go") {
			want = append(want, hello+" <nil>")
		}
		check(t, p, append(want, "go true true"), "--input", binary, script)
	})
	t.Run("musl", func(t *testing.T) {
		script := filepath.Join(testenv.Dir(t), "run.bash")
		if err := os.WriteFile(script, []byte("musl-gcc -static -o resolve /inputs/resolve.c && ./resolve"), 0o600); err != nil {
			t.Fatal(err)
		}
		check(t, p, []string{"musl api.example found at once", "musl other.example Name does not resolve at once"}, "--input", "testdata/resolve.c", script)
	})
	for _, name := range w.Asked() {
		if name != "api.example" && name != "key.example" && name != "db.example" {
			t.Errorf("%s left the host", name)
		}
	}
}

// handler says which name was asked for, and whether the secret came along.
func handler(repository string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /repo.git/", http.StripPrefix("/repo.git/", http.FileServer(http.Dir(repository))))
	mux.HandleFunc("PUT /upload", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		with := "without"
		if r.Header.Get("Authorization") == "Bearer "+secret {
			with = "with"
		}
		fmt.Fprintf(w, "%s %s", r.Host, with)
	})
	return mux
}

// repository is a bare one that any server of files can serve.
func repository(t *testing.T) string {
	t.Helper()
	dir := testenv.Dir(t)
	work, bare := filepath.Join(dir, "work"), filepath.Join(dir, "repo.git")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "file"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-C", work, "init", "-q"}, {"-C", work, "add", "."},
		{"-C", work, "-c", "user.name=test", "-c", "user.email=test@example", "commit", "-q", "-m", "first"},
		{"clone", "-q", "--bare", work, bare}, {"-C", bare, "update-server-info"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	return bare
}

// check runs a program and compares what it prints.
func check(t *testing.T, p *testenv.Proctor, want []string, args ...string) {
	t.Helper()
	out, _ := p.Command(append([]string{"run", "--json", "--image", "clients", "--profile", "clients", "--memory", "2G", "--timeout", "3m"}, args...)...).Output()
	var v audit.Verdict
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(strings.TrimSuffix(string(v.Stdout.Bytes()), "\n"), "\n")
	if diff := cmp.Diff(want, got); diff != "" || v.Status != audit.StatusOK {
		t.Errorf("%s: %s\n%s\n-want +got:\n%s", v.Status, v.Reason, v.Stderr.Bytes(), diff)
	}
}
