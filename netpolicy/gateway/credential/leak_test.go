package credential

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// everyVerb is how values end up in logs.
func everyVerb(v any) string {
	var b strings.Builder
	for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&b, f+"\n", v)
	}
	j, _ := json.Marshal(v)
	b.Write(j)
	return b.String()
}

// Nothing that is printed, returned, recorded or answered holds a secret, whatever goes wrong.
func TestNothingTellsTheSecret(t *testing.T) {
	secrets := map[string]string{"header": "header-secret-0123456789", "basic": "basic-secret-0123456789", "query": "query-secret-0123456789", "placeholder": "placed-secret-0123456789"}
	credentials := []egress.Credential{
		{Name: "header", Host: "header.example", Header: "X-Key"},
		{Name: "basic", Host: "basic.example", Basic: "me"},
		{Name: "query", Host: "query.example", Query: "key"},
		{Name: "placeholder", Host: "placeholder.example", Placeholder: "PLACEHOLDER", Methods: []string{"GET", "POST"}, Paths: []string{"/*"}},
	}
	var hosts []string
	for _, c := range credentials {
		hosts = append(hosts, c.Host)
	}
	u := newUpstreams(t, hosts...)
	to := map[string]string{}
	reached := map[string]bool{}
	for _, c := range credentials {
		to[c.Host] = u.start(t, c.Host, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all := fmt.Sprint(r.RequestURI, r.Header)
			if user, password, ok := r.BasicAuth(); ok {
				all += user + password
			}
			reached[c.Name] = reached[c.Name] || strings.Contains(all, secrets[c.Name])
			for name, other := range secrets {
				if name != c.Name && strings.Contains(all, other) {
					t.Errorf("%s got the secret of %s", c.Name, name)
				}
			}
			w.Header().Set("X-All", strings.ReplaceAll(all, "\n", " "))
			switch r.URL.Path {
			case "/redirect":
				http.Redirect(w, r, "/next?"+r.URL.RawQuery, http.StatusFound)
			case "/encoding":
				w.Header().Set("Content-Encoding", all)
			case "/cut":
				w.Header().Set("Content-Length", "10000")
				fmt.Fprint(w, all)
			case "/status":
				// The transport's error quotes what it can't read.
				conn, rw, _ := http.NewResponseController(w).Hijack()
				fmt.Fprintf(rw, "HTTP/1.1 %s %s\r\n\r\n", secrets[c.Name], secrets[c.Name])
				rw.Flush()
				conn.Close()
			case "/header":
				conn, rw, _ := http.NewResponseController(w).Hijack()
				fmt.Fprintf(rw, "HTTP/1.1 200 %s\r\n%s\r\n\r\n", secrets[c.Name], secrets[c.Name])
				rw.Flush()
				conn.Close()
			default:
				fmt.Fprint(w, all)
			}
		}))
	}
	r := newRun(t, runOptions{credentials: credentials, secrets: secrets, to: to, roots: u.roots})
	var said bytes.Buffer
	for _, h2 := range []bool{false, true} {
		c := r.client(h2)
		for _, host := range hosts {
			for _, path := range []string{"/", "/redirect", "/encoding", "/cut", "/status", "/header", "/../x"} {
				for _, method := range []string{"GET", "POST", "DELETE"} {
					req, err := http.NewRequest(method, "https://"+host+path+"?q=PLACEHOLDER", strings.NewReader("PLACEHOLDER"))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("X-Token", "PLACEHOLDER")
					res, err := c.Do(req)
					if err != nil {
						fmt.Fprintln(&said, err)
						continue
					}
					fmt.Fprintln(&said, res.Status, res.Header)
					said.ReadFrom(res.Body)
					fmt.Fprintln(&said, res.Trailer)
					res.Body.Close()
				}
			}
		}
	}
	conn, err := net.Dial("tcp", r.listeners[hosts[0]])
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n") // no TLS
	said.ReadFrom(conn)
	conn.Close()
	r.end()
	for name := range secrets {
		if !reached[name] {
			t.Errorf("secret %s never reached its upstream: the test shows nothing", name)
		}
	}
	if !strings.Contains(said.String(), Redacted) || len(r.recorder.scrubs) == 0 || len(r.errs) == 0 {
		t.Error("no secret came back, or nothing failed: the test shows nothing")
	}
	for _, e := range r.errs {
		fmt.Fprintln(&said, e)
	}
	said.WriteString(everyVerb(r.recorder.flows))
	said.WriteString(everyVerb(r.recorder.scrubs))
	stream := r.term.scrub.Stream(false)
	stream.Append(nil, []byte(secrets["header"][:20]))
	h := r.term.hosts[hosts[0]]
	one := &connection{t: r.term, host: h}
	for _, v := range []any{
		r.term, *r.term, r.term.options, r.term.scrub, *r.term.scrub, stream, *stream, r.ca, *r.ca, h, h.injector, *h.injector,
		&exchange{c: one}, one, &upload{c: one}, &download{c: one, stream: stream}, []any{r.term, h, stream}, map[string]any{"a": h.injector},
		r.term.scrub.tables, *r.term.scrub.tables, needle{secrets["header"], 1}, r.term.scrub.tables.text, struct{ hidden *Terminator }{r.term}, struct{ hidden *Scrubber }{r.term.scrub},
	} {
		said.WriteString(everyVerb(v))
	}
	text := strings.ToLower(said.String())
	for name, s := range secrets {
		for _, f := range forms(s) {
			if strings.Contains(text, strings.ToLower(f)) {
				i := strings.Index(text, strings.ToLower(f))
				t.Errorf("secret %s is told: ...%q", name, text[max(0, i-100):i+len(f)])
			}
		}
	}
	// The key of the authority is a secret, too.
	key, err := r.ca.key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{new(big.Int).SetBytes(key).String(), hex.EncodeToString(key), string(key)} {
		if strings.Contains(text, strings.ToLower(form)) {
			t.Error("the authority's key is told")
		}
	}
	var perConn = map[audit.Decision]int{}
	for _, f := range r.recorder.flows {
		perConn[f.Decision]++
	}
	if perConn[audit.Allowed] == 0 {
		t.Error("no flow was allowed")
	}
}
