package relay

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"proctor/audit"
)

// Rules of this package, as they are recorded. Names stand in the flow's own fields.
const (
	ruleNeverResolved = "a name never resolved"
	ruleNoTerminator  = "a name with a credential, which nothing here can add"
	ruleOnlyTLS       = "port 443 is for TLS alone"
	ruleOnlyHTTP      = "port 80 is for HTTP/1 alone"
	ruleSNI           = "the ClientHello is for another name"
)

// transparent serves a connection to its own local address.
func (s *session) transparent() {
	if s.dest == s.r.ProxyAddr {
		s.proxy()
		return
	}
	t, ok := s.lookUp(s.dest)
	if !ok {
		s.explain(t)
		return
	}
	if t.name == "" {
		s.plain(t)
		return
	}
	s.named(t)
}

// lookUp says what an address and port stand for, and whether the policy grants it. That is
// recorded.
func (s *session) lookUp(to netip.AddrPort) (target, bool) {
	t := target{addr: to.Addr(), port: to.Port()}
	if name, ok := s.r.Names.Name(to.Addr()); ok {
		t.name, t.addr = name, netip.Addr{}
		return t, s.granted(t)
	}
	if s.r.synthetic(to.Addr()) {
		s.block(ruleNeverResolved)
		return t, false
	}
	return t, s.granted(t)
}

// granted asks the policy, and records its answer.
func (s *session) granted(t target) bool {
	if t.name != "" {
		s.flow.Name = audit.Text(t.name)
		return s.decide(s.r.Policy.Host(t.name, t.port))
	}
	return s.decide(s.r.Policy.Address(t.addr, t.port, "tcp"))
}

// plain passes on everything.
func (s *session) plain(t target) {
	if s.connect(t) != nil {
		abort(s.client)
		return
	}
	s.pump(s.buf, nil)
}

// named serves a connection to a granted name.
func (s *session) named(t target) {
	speak := s.r.SpeakTimeout
	if t.port == 443 || t.port == 80 {
		speak = 0
	}
	k, ok := s.sniff(speak)
	if !ok {
		abort(s.client)
		return
	}
	switch {
	case t.port == 443 && k != kindTLS:
		s.block(ruleOnlyTLS)
		if k == kindHTTP {
			s.answer(refuse(403, ruleOnlyTLS), t)
			return
		}
		abort(s.client)
	case t.port == 80 && k != kindHTTP:
		s.block(ruleOnlyHTTP)
		if k == kindTLS {
			s.alert(alertAccessDenied)
			return
		}
		abort(s.client)
	case k == kindTLS:
		s.tls(t)
	case k == kindHTTP:
		s.http(t)
	default:
		s.plain(t)
	}
}

// tls serves a connection whose first record is one of TLS.
func (s *session) tls(t target) {
	claimed, err := s.readHello(time.Now().Add(s.r.HelloTimeout))
	if err != nil {
		switch {
		case s.cutBy() != nil:
		case errors.Is(err, errNoName):
			s.block(err.Error())
			s.alert(alertUnrecognizedName)
		default:
			s.block(err.Error())
			s.alert(alertDecode)
		}
		return
	}
	if name, ok := canonical(claimed); !ok || name != t.name {
		s.claim(claimed)
		s.block(ruleSNI)
		s.alert(alertUnrecognizedName)
		return
	}
	if t.port == 443 && s.r.Policy.Credential(t.name) != nil {
		s.terminate(t)
		return
	}
	s.plain(t)
}

// terminate hands the connection over.
func (s *session) terminate(t target) {
	if s.r.Terminator == nil {
		s.block(ruleNoTerminator)
		s.alert(alertAccessDenied)
		return
	}
	s.handed = true
	conn := &meter{Conn: s.client, reads: s.upward(), writes: s.downward(), first: s.buf}
	dest := netip.AddrPortFrom(s.dest.Addr(), t.port)
	// The terminator has recorded its error with everything else.
	_ = s.r.Terminator.Serve(s.ctx, conn, t.name, dest, s.flow.Client)
}

// readHello reads a whole ClientHello into s.buf and returns the name in it, as it stands
// there. It leaves s.buf as it came.
func (s *session) readHello(deadline time.Time) (string, error) {
	var h helloReader
	for {
		name, done, err := h.next(s.buf)
		if done || err != nil {
			return name, err
		}
		if err := s.more(deadline); err != nil {
			if isTimeout(err) {
				return "", malformed("not all of it came within " + s.r.HelloTimeout.String())
			}
			return "", malformed("cut off")
		}
	}
}

// explainTime is how long a refused client may take to say what it speaks, so that it can be
// told why.
const explainTime = time.Second

// explain ends a refused connection in the way that its client understands best, and records
// the name that the client has in mind.
func (s *session) explain(t target) {
	if t.port != 443 && t.port != 80 {
		abort(s.client)
		return
	}
	deadline := time.Now().Add(explainTime)
	k := kindUnknown
	for k == kindUnknown {
		if s.more(deadline) != nil {
			abort(s.client)
			return
		}
		k = classify(s.buf)
	}
	switch k {
	case kindTLS:
		if claimed, err := s.readHello(deadline); err == nil && !strings.EqualFold(claimed, t.name) {
			s.claim(claimed)
		}
		s.alert(alertAccessDenied)
	case kindHTTP:
		br := s.reader()
		s.client.SetReadDeadline(deadline)
		if raw, err := readHead(br); err == nil {
			if h, wrong := checkHead(raw); wrong == nil && !strings.EqualFold(h.host, t.host()) {
				s.claim(h.host)
			}
		}
		s.answer(refuse(403, s.flow.Rule), t)
	default:
		abort(s.client)
	}
}
