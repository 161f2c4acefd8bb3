package relay

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"proctor/audit"
)

const (
	ruleSpelling = "it is neither a host name nor an address in its plain spelling"
	ruleItself   = "not granted: the proxy does not connect to itself"
)

// proxy serves a connection to the explicit proxy: one tunnel, or one request.
func (s *session) proxy() {
	s.flow.Proxy = true
	br := s.reader()
	s.client.SetReadDeadline(time.Now().Add(s.r.HelloTimeout))
	raw, err := readHead(br)
	s.client.SetReadDeadline(time.Time{})
	if err != nil {
		h := &httpConn{s: s}
		if errors.Is(err, io.EOF) && br.Buffered() > 0 {
			err = io.ErrUnexpectedEOF
		}
		s.block("nothing was asked for")
		h.ended(err)
		return
	}
	hd, wrong := checkHead(raw)
	if wrong != nil {
		s.refused(wrong, target{})
		return
	}
	tunnel := hd.method == http.MethodConnect
	t, wrong := s.asked(hd)
	if wrong != nil {
		host := cmp.Or(wrong.host, hd.meant())
		s.flow.Name = audit.Text(host[:min(len(host), maxClaimed)])
		s.block(wrong.rule)
		s.answer(wrong, t)
		return
	}
	s.flow.Name = audit.Text(t.plain())
	if t.name == "" {
		// A client may have resolved the name by itself.
		var ok bool
		if t, ok = s.lookUp(netip.AddrPortFrom(t.addr, t.port)); !ok {
			s.answer(refuse(http.StatusForbidden, s.flow.Rule), t)
			return
		}
	} else if !s.granted(t) {
		s.answer(refuse(http.StatusForbidden, s.flow.Rule), t)
		return
	}
	if !tunnel && t.name != "" && t.port == 443 {
		s.block(ruleOnlyTLS)
		s.answer(refuse(http.StatusForbidden, ruleOnlyTLS), t)
		return
	}
	if !tunnel {
		(&httpConn{s: s, t: t, br: br, single: true}).serve()
		return
	}
	// The head is in the buffer.
	_, _ = br.Discard(len(raw))
	rest, _ := br.Peek(br.Buffered())
	s.buf = slices.Clone(rest)
	s.tunnel(t)
}

// meant is the host that a request which is refused for its form seems to be for.
func (hd *head) meant() string {
	if _, rest, ok := strings.Cut(hd.uri, "://"); ok {
		authority, _, _ := strings.Cut(strings.ReplaceAll(rest, "?", "/"), "/")
		return authority
	}
	return hd.host
}

// tunnel answers CONNECT, and then has the same rules as a connection to the name itself.
func (s *session) tunnel(t target) {
	if t.port != 443 || s.r.Policy.Credential(t.name) == nil {
		if s.connect(t) != nil {
			if s.cutBy() == nil {
				s.answer(refuse(http.StatusBadGateway, s.flow.Error), t)
			}
			return
		}
	}
	if _, err := io.WriteString(s.client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		s.lostClient(err)
		return
	}
	if t.name == "" {
		s.plain(t)
		return
	}
	s.named(t)
}

// asked says what a request to the proxy asks for. Nothing here is looked up in the way of the
// C library, which takes 127.1 and 0x7f000001 for addresses.
func (s *session) asked(hd *head) (target, *refusal) {
	var authority string
	port := uint16(0)
	if hd.method == http.MethodConnect {
		authority = hd.uri
	} else {
		var ok bool
		if authority, _, ok = cutAbsolute(hd.uri); !ok {
			switch {
			case strings.HasPrefix(strings.ToLower(hd.uri), "https:"):
				return target{}, bad("https:// through the proxy is asked for with CONNECT")
			case hd.uri[0] == '/' || hd.uri == "*":
				return target{}, bad("this is a proxy: the request's target is http://HOST/PATH, or HOST:PORT with CONNECT")
			}
			return target{}, bad("the proxy is for http:// and CONNECT alone")
		}
		port = 80
	}
	t, _, ok := parseTarget(authority, port)
	if !ok {
		return target{}, &refusal{status: http.StatusForbidden, rule: ruleSpelling, host: authority}
	}
	if netip.AddrPortFrom(t.addr, t.port) == s.r.ProxyAddr {
		return target{}, &refusal{status: http.StatusForbidden, rule: ruleItself, host: authority}
	}
	return t, nil
}
