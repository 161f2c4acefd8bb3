package credential

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"proctor/netpolicy/egress"
)

// Two runs use the same host at the same time with different secrets.
func TestRunsShareNothing(t *testing.T) { // P14
	bothProtocols(t, func(t *testing.T, down, up bool) {
		var mu sync.Mutex
		byConn := map[string]map[string]bool{} // upstream connection to the secrets that came over it
		u := newUpstreams(t, hostA)
		addr := u.start(t, hostA, up, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if byConn[r.RemoteAddr] == nil {
				byConn[r.RemoteAddr] = map[string]bool{}
			}
			byConn[r.RemoteAddr][r.Header.Get("Authorization")] = true
			fmt.Fprint(w, r.Header.Get("X-Run"), r.Header.Get("Authorization"))
		}))
		const n = 2
		var runs []*run
		for i := range n {
			runs = append(runs, newRun(t, runOptions{
				credentials: []egress.Credential{bearer(hostA)},
				secrets:     map[string]string{"key-of-" + hostA: fmt.Sprintf("secret-number-%d", i)},
				to:          map[string]string{hostA: addr}, roots: u.roots,
			}))
		}
		clients := []*http.Client{runs[0].client(down), runs[1].client(down)}
		for k := range 20 {
			i := k % n
			_, body := send(t, clients[i], "GET", "https://"+hostA+"/", "", http.Header{"X-Run": {fmt.Sprint(i)}})
			if body != fmt.Sprintf("%dBearer [redacted]", i) {
				t.Fatalf("run %d got %q", i, body)
			}
		}
		var wg sync.WaitGroup
		for i := range n {
			for range 5 {
				wg.Go(func() {
					for range 5 {
						send(t, clients[i], "GET", "https://"+hostA+"/", "", nil)
					}
				})
			}
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		for conn, secrets := range byConn {
			if len(secrets) != 1 {
				t.Errorf("connection %s carried %v", conn, secrets)
			}
		}
		if runs[0].dialer.conns.Load() == 0 || runs[1].dialer.conns.Load() == 0 {
			t.Error("a run had no connection of its own")
		}
	})
}

func TestRunsAuthoritiesDoNotVouchForEachOther(t *testing.T) {
	h := func(http.ResponseWriter, *http.Request) { t.Error("asked") }
	a, b := simple(t, false, h, nil), simple(t, false, h, nil)
	c := a.client(false)
	a.listeners[hostA] = b.listeners[hostA]
	if _, err := c.Get("https://" + hostA + "/"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("error %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	ca, err := NewAuthority("r", []string{hostA})
	if err != nil {
		t.Fatal(err)
	}
	c := bearer(hostA)
	good := func() Options {
		return Options{
			Authority: ca, Dialer: &dialer{}, Recorder: &recorder{}, Roots: poolOf(t, ca),
			Policy:  &policy{credentials: map[string]*egress.Credential{hostA: &c}},
			Secrets: func(string) (Secret, bool) { return secretText(plainSecret), true },
		}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"Authority":     func(o *Options) { o.Authority = nil },
		"Roots":         func(o *Options) { o.Roots = nil }, // or Go would ask the system's
		"Secrets":       func(o *Options) { o.Secrets = nil },
		"no credential": func(o *Options) { o.Policy = &policy{} },
		"is missing":    func(o *Options) { o.Secrets = func(string) (Secret, bool) { return nil, false } },
		"7 bytes":       func(o *Options) { o.Secrets = func(string) (Secret, bool) { return secretText("hunter2"), true } },
		"line break": func(o *Options) {
			o.Secrets = func(string) (Secret, bool) { return secretText(plainSecret + "\n"), true }
		},
	} {
		o := good()
		change(&o)
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
		if err != nil {
			noSecret(t, name, err.Error(), "hunter2")
		}
	}
}
