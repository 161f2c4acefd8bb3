package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// record makes a conn that keeps what is written to it and then ends.
type scripted struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *scripted) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *scripted) Write(p []byte) (int, error)      { return c.out.Write(p) }
func (c *scripted) SetDeadline(time.Time) error      { return nil }
func (c *scripted) SetReadDeadline(time.Time) error  { return nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }
func (c *scripted) Close() error                     { return nil }

// clientHello is what Go's own client says first.
func clientHello(config *tls.Config) []byte {
	c := &scripted{in: bytes.NewReader(nil)}
	_ = tls.Client(c, config).Handshake()
	return c.out.Bytes()
}

// theirs is how crypto/tls reads a stream.
func theirs(stream []byte) (name string, ok bool) {
	c := &scripted{in: bytes.NewReader(stream)}
	_ = tls.Server(c, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = info.ServerName, true
		return nil, errors.New("enough")
	}}).HandshakeContext(context.Background())
	return name, ok
}

func ours(stream []byte) (string, bool, error) {
	var h helloReader
	return h.next(stream)
}

// fragment puts a hello's handshake message into records of n bytes.
func fragment(hello []byte, n int) []byte {
	var out []byte
	for msg := hello[recordHeader:]; len(msg) > 0; {
		m := min(n, len(msg))
		out = append(out, recordHandshake, 3, 1, byte(m>>8), byte(m))
		out = append(out, msg[:m]...)
		msg = msg[m:]
	}
	return out
}

var configs = []*tls.Config{
	{ServerName: "one.test"},
	{ServerName: "One.TEST", NextProtos: []string{"h2", "http/1.1"}},
	{ServerName: "one.test", MaxVersion: tls.VersionTLS12},
	{ServerName: "one.test", CurvePreferences: []tls.CurveID{tls.X25519}},
	{ServerName: strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".test"},
	{InsecureSkipVerify: true},
}

// However a hello is cut into records and segments, it is read as crypto/tls reads it.
func TestHelloAsCryptoTLS(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hello := clientHello(rapid.SampledFrom(configs).Draw(t, "config"))
		hello = fragment(hello, rapid.IntRange(1, 600).Draw(t, "record"))
		want, ok := theirs(hello)
		if !ok {
			t.Fatal("crypto/tls does not read its own hello")
		}
		var h helloReader
		step := rapid.IntRange(1, 300).Draw(t, "segment")
		for n := step; ; n += step {
			n = min(n, len(hello))
			name, done, err := h.next(hello[:n])
			if want == "" && n == len(hello) {
				if !errors.Is(err, errNoName) {
					t.Fatalf("without a name: %v", err)
				}
				return
			}
			if err != nil || done != (n == len(hello)) {
				t.Fatalf("after %d of %d bytes: done %t, %v", n, len(hello), done, err)
			}
			if done {
				if name != want {
					t.Fatalf("the name is %q; crypto/tls reads %q", name, want)
				}
				return
			}
		}
	})
}

// vec is a vector of TLS with a length of n bytes before it.
func vec(n int, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	var out []byte
	for i := n - 1; i >= 0; i-- {
		out = append(out, byte(len(body)>>(8*i)))
	}
	return append(out, body...)
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = append(list, vec(2, []byte(n))...)
	}
	return append([]byte{0, 0}, vec(2, vec(2, list))...)
}

// build makes a stream with a ClientHello that has these extensions.
func build(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, vec(1)...)
	body = append(body, vec(2, []byte{0x13, 0x01})...)
	body = append(body, vec(1, []byte{0})...)
	if extensions != nil {
		body = append(body, vec(2, extensions...)...)
	}
	msg := append([]byte{1}, vec(3, body)...)
	return fragment(append(make([]byte, recordHeader), msg...), maxRecord)
}

func TestHelloRefused(t *testing.T) {
	good := build(sni("one.test"))
	if name, done, err := ours(good); name != "one.test" || !done || err != nil {
		t.Fatalf("a good one: %q %t %v", name, done, err)
	}
	other := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] = b
		return c
	}
	for name, c := range map[string]struct {
		stream []byte
		want   string
	}{
		"not TLS":            {[]byte("GET / HTTP/1.1\r\n"), "not TLS"},
		"SSL 2":              {[]byte{0x80, 0x2e, 1, 3, 1}, "not TLS"},
		"no extensions":      {build(), "names no server"},
		"no name":            {build([]byte{0, 23, 0, 0}), "names no server"},
		"two names":          {build(sni("one.test", "other.test")), "more than one"},
		"two extensions":     {build(sni("one.test"), sni("other.test")), "more than one"},
		"twice another":      {build([]byte{0, 23, 0, 0}, []byte{0, 23, 0, 0}, sni("one.test")), "twice"},
		"empty name":         {build(sni("")), "empty"},
		"no list":            {build([]byte{0, 0, 0, 0}), "length of server_name"},
		"another kind":       {build(append([]byte{0, 0}, vec(2, vec(2, []byte{1}, vec(2, []byte("one.test"))))...)), "no host_name"},
		"bytes after list":   {build(append([]byte{0, 0}, vec(2, vec(2, []byte{0}, vec(2, []byte("a"))), []byte{0})...)), "length of server_name"},
		"another message":    {other(5, 2), "another message"},
		"extensions too few": {other(len(good)-len(sni("one.test"))-1, 1), "length of the extensions"},
		"too long":           {other(6, 1), "longer than"},
		"empty record":       {[]byte{22, 3, 1, 0, 0}, "length of a record"},
		"long record":        {[]byte{22, 3, 1, 0x40, 1}, "length of a record"},
		"alert in between":   {append(fragment(good, 20)[:25], 21, 3, 1, 0, 2, 1, 0), "another record"},
	} {
		t.Run(name, func(t *testing.T) {
			_, done, err := ours(c.stream)
			if done || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("done %t, %v; it should be refused with %q", done, err, c.want)
			}
		})
	}
}

func FuzzClientHello(f *testing.F) {
	for _, c := range configs {
		f.Add(clientHello(c))
		f.Add(fragment(clientHello(c), 7))
	}
	f.Add(build(sni("one.test", "other.test")))
	f.Add(build(sni("one.test"), sni("other.test")))
	f.Fuzz(func(t *testing.T, stream []byte) {
		name, done, err := ours(stream)
		if done && err != nil {
			t.Fatalf("done, and %v", err)
		}
		// A server may refuse what was let through; it must not read another name.
		if want, ok := theirs(stream); ok && done && name != want {
			t.Fatalf("the name is %q; crypto/tls reads %q", name, want)
		}
	})
}
