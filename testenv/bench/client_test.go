package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"
)

// clientVariable makes this binary a client instead of a benchmark: a process of its own can
// be in a run's network namespace and cgroup, as a run's code is.
const clientVariable = "PROCTOR_BENCH_CLIENT"

func TestMain(m *testing.M) {
	setup, asked := os.LookupEnv(clientVariable)
	if !asked {
		os.Exit(m.Run())
	}
	if err := clientMain([]byte(setup)); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// A clientSetup is how a client reaches apiHost: by the resolver, or where At says.
type clientSetup struct {
	Resolver string
	At       string
	CA       []byte
}

// A task is what a client is to do. Each is one line, and answered by one.
type task struct {
	What  string // fetch, ask or get
	N     int    // of turns: requests one after another, or that many at a time
	Bytes int    // of each answer
	For   time.Duration
}

type outcome struct {
	Took  time.Duration
	Times []time.Duration // of each request
	Error string
}

type client struct {
	setup clientSetup
	tls   *tls.Config
	http  *http.Client
}

func clientMain(text []byte) error {
	c := &client{}
	if err := json.Unmarshal(text, &c.setup); err != nil {
		return err
	}
	c.tls = &tls.Config{ServerName: apiHost, RootCAs: x509.NewCertPool()}
	if !c.tls.RootCAs.AppendCertsFromPEM(c.setup.CA) {
		return errors.New("no certificates")
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, TLSClientConfig: c.tls.Clone(), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return c.dial(ctx)
	}}
	c.http = &http.Client{Transport: transport}
	tasks := map[string]func(task, *outcome) error{"fetch": c.fetch, "ask": c.ask, "get": c.get}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var t task
		if err := json.Unmarshal(in.Bytes(), &t); err != nil {
			return err
		}
		var o outcome
		if err := tasks[t.What](t, &o); err != nil {
			o.Error = fmt.Sprintf("%s: %v", t.What, err)
		}
		if err := out.Encode(o); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	if c.setup.At != "" {
		return d.DialContext(ctx, "tcp4", c.setup.At)
	}
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.setup.Resolver)
	}}
	return d.DialContext(ctx, "tcp4", apiHost+".:443")
}

func (c *client) connect() (*tls.Conn, error) {
	raw, err := c.dial(context.Background())
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c.tls)
	if err := conn.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// answerBytes serves fetch and ask: each question is how many bytes are wanted.
func answerBytes(c net.Conn) {
	var question [8]byte
	buf := make([]byte, 256<<10)
	for {
		if _, err := io.ReadFull(c, question[:]); err != nil {
			return
		}
		for left := binary.BigEndian.Uint64(question[:]); left > 0; {
			n, err := c.Write(buf[:min(left, uint64(len(buf)))])
			if err != nil {
				return
			}
			left -= uint64(n)
		}
	}
}

func exchange(c net.Conn, bytes int, buf []byte) error {
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(bytes))); err != nil {
		return err
	}
	for bytes > 0 {
		n, err := c.Read(buf[:min(bytes, len(buf))])
		if err != nil {
			return err
		}
		bytes -= n
	}
	return nil
}

// fetch times one large answer.
func (c *client) fetch(t task, o *outcome) error {
	conn, err := c.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 256<<10)
	if err := exchange(conn, 1<<20, buf); err != nil { // windows grow
		return err
	}
	began := time.Now()
	err = exchange(conn, t.Bytes, buf)
	o.Took = time.Since(began)
	return err
}

// ask times small answers on one connection, one after another.
func (c *client) ask(t task, o *outcome) error {
	conn, err := c.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, t.Bytes)
	for i := range t.N + 100 {
		began := time.Now()
		if err := exchange(conn, t.Bytes, buf); err != nil {
			return err
		}
		if i >= 100 { // the first warm caches
			o.Times = append(o.Times, time.Since(began))
		}
	}
	return nil
}

// get asks over HTTP for as long as it is told, N at a time, on connections that are kept.
func (c *client) get(t task, o *outcome) error {
	var mu sync.Mutex
	var failed error
	var asking sync.WaitGroup
	began := time.Now()
	for range t.N {
		asking.Go(func() {
			var times []time.Duration
			var err error
			for err == nil && time.Since(began) < t.For {
				start := time.Now()
				err = c.getOne(t.Bytes)
				times = append(times, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			o.Times = append(o.Times, times...)
			failed = errors.Join(failed, err)
		})
	}
	asking.Wait()
	o.Took = time.Since(began)
	return failed
}

func (c *client) getOne(bytes int) error {
	r, err := c.http.Get("https://" + apiHost + "/v1/x")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil || r.StatusCode != http.StatusOK || r.ProtoMajor != 1 || n != int64(bytes) {
		return fmt.Errorf("%s %s, %d bytes, %v", r.Proto, r.Status, n, err)
	}
	return nil
}
