package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Narrowing is what a caller leaves of a policy for one run. The zero one leaves all.
type Narrowing struct {
	// Deny leaves nothing.
	Deny bool `json:"deny,omitempty"`
	// Allow leaves what it names: HOST[:PORT], where a host may be a wildcard, or
	// ADDRESS[:PORT][/PROTOCOL] or CIDR[:PORT][/PROTOCOL], an IPv6 address with a port in
	// brackets. What is left out stands for all that the policy grants there. Empty: all.
	Allow []string `json:"allow,omitempty"`
}

// maxNarrowing bounds what a caller sends.
const maxNarrowing = 256

// Narrow makes a policy that allows what both this one and the narrowing do, and has the
// credentials of the hosts that are left. Each entry has to be inside what one grant of the
// policy opens: a caller who asks for more is told so, and gets nothing. The policy itself,
// which has been checked, is not changed.
func (p *Policy) Narrow(n Narrowing) (*Policy, error) {
	switch {
	case n.Deny && len(n.Allow) > 0:
		return nil, fmt.Errorf("the network is denied and %q is allowed: ask for one of the two", clip(n.Allow[0]))
	case n.Deny:
		return &Policy{Limits: p.Limits}, nil
	case len(n.Allow) == 0:
		return p.clone(), nil
	case len(n.Allow) > maxNarrowing:
		return nil, fmt.Errorf("%d entries are allowed, at most %d are taken: make a profile of them", len(n.Allow), maxNarrowing)
	}
	out := &Policy{Limits: p.Limits}
	for _, s := range n.Allow {
		r, err := parseRequest(s)
		if err != nil {
			return nil, fmt.Errorf("allow %w", err)
		}
		if !slices.ContainsFunc(p.Allow, r.inside) {
			return nil, fmt.Errorf("allow %q: is not inside one grant of the profile (%s): ask for a part of it, or change the profile", clip(s), p.summary())
		}
		out.add(p, r)
	}
	for _, c := range p.Credentials {
		if out.Host(c.Host, DefaultPort).Allowed {
			out.Credentials = append(out.Credentials, c.clone())
		}
	}
	if err := out.Check(); err != nil {
		return nil, fmt.Errorf("what is left of the profile: %w", err)
	}
	return out, nil
}

// add puts in what r leaves of the policy p. Where two grants open the same, the one that
// would have decided stays.
func (out *Policy) add(p *Policy, r request) {
	taken := map[string]bool{}
	for i := range out.Allow {
		for _, one := range out.Allow[i].each() {
			taken[one] = true
		}
	}
	grants := make([]*Grant, len(p.Allow))
	for i := range p.Allow {
		grants[i] = &p.Allow[i]
	}
	slices.SortStableFunc(grants, func(a, b *Grant) int {
		switch {
		case a.closer(b):
			return -1
		case b.closer(a):
			return 1
		}
		return 0
	})
	for _, g := range grants {
		left, ok := r.part(g)
		if !ok {
			continue
		}
		ports := left.Ports
		left.Ports = nil
		for _, port := range ports {
			if one := left.on(port); !taken[one] {
				taken[one] = true
				left.Ports = append(left.Ports, port)
			}
		}
		if len(left.Ports) > 0 {
			out.Allow = append(out.Allow, left)
		}
	}
}

// on is the grant of one port alone.
func (g Grant) on(port uint16) string {
	g.Ports = []uint16{port}
	return g.String()
}

// each is the grant port by port.
func (g *Grant) each() []string {
	list := make([]string, len(g.Ports))
	for i, port := range g.Ports {
		list[i] = g.on(port)
	}
	return list
}

// summary is the grants for an error, not too many of them.
func (p *Policy) summary() string {
	const most = 20
	if len(p.Allow) == 0 {
		return noNetwork
	}
	var list []string
	for i := range p.Allow {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more", len(p.Allow)-most))
			break
		}
		list = append(list, p.Allow[i].String())
	}
	return strings.Join(list, ", ")
}

// A request is one entry of a narrowing: a grant in which port and protocol may be open.
type request struct {
	host     string
	cidr     netip.Prefix
	port     uint16 // 0: any
	protocol string // empty: any
}

// inside reports whether one grant opens all of the request.
func (r request) inside(g Grant) bool {
	if r.port != 0 && !slices.Contains(g.Ports, r.port) {
		return false
	}
	if r.host == "" {
		return g.Host == "" && within([]netip.Prefix{g.CIDR}, r.cidr) && (r.protocol == "" || r.protocol == g.Protocol)
	}
	name, wild := strings.CutPrefix(r.host, "*.")
	rest, grantWild := g.wildcard()
	if wild {
		return grantWild && (name == rest || under(name, rest))
	}
	return g.covers(name)
}

// part is what the request and a grant have in common.
func (r request) part(g *Grant) (Grant, bool) {
	left := *g
	left.Ports = slices.Clone(g.Ports)
	if r.port != 0 {
		left.Ports = slices.DeleteFunc(left.Ports, func(p uint16) bool { return p != r.port })
	}
	if len(left.Ports) == 0 || r.protocol != "" && r.protocol != g.Protocol || (r.host == "") != (g.Host == "") {
		return Grant{}, false
	}
	if r.host == "" {
		switch {
		case within([]netip.Prefix{g.CIDR}, r.cidr):
			left.CIDR = r.cidr
		case !within([]netip.Prefix{r.cidr}, g.CIDR):
			return Grant{}, false
		}
		return left, true
	}
	// The grant's names, or the request's, are all among the other's.
	all := Grant{Host: r.host}
	name, wild := strings.CutPrefix(r.host, "*.")
	rest, grantWild := g.wildcard()
	switch {
	case r.host == g.Host:
	case !wild && g.covers(name), wild && grantWild && under(name, rest):
		left.Host = r.host
	case wild && !grantWild && all.covers(g.Host), wild && grantWild && under(rest, name):
	default:
		return Grant{}, false
	}
	return left, true
}

// parseRequest reads an entry of [Narrowing]. Its errors begin with the entry.
func parseRequest(s string) (r request, err error) {
	fail := func(fix string) (request, error) { return request{}, fmt.Errorf("%q: %s", clip(s), fix) }
	if s == "" || len(s) > maxSpelling {
		return fail("write a host or a range of addresses that the profile grants")
	}
	rest := s
	for _, protocol := range []string{"tcp", "udp"} {
		if cut, ok := strings.CutSuffix(rest, "/"+protocol); ok {
			rest, r.protocol = cut, protocol
			break
		}
	}
	if p, port, ok := splitRange(rest); ok {
		switch {
		case p != p.Masked():
			return fail(fmt.Sprintf("has bits set past its length: write %s, or %s for the one address", p.Masked(), single(p.Addr())))
		case within(unreachable, p):
			return fail("holds no address of one host")
		}
		r.cidr, r.port = p, port
		return r, nil
	}
	if r.protocol != "" {
		return fail("write a protocol with addresses alone, such as 203.0.113.7:5432/tcp")
	}
	host, number, hasPort := strings.Cut(rest, ":")
	if hasPort {
		if r.port, err = parsePort(number); err != nil {
			return fail("write HOST, or HOST:PORT with a port from 1 to 65535")
		}
	}
	if r.host, err = grantHost(host); err != nil {
		return fail(err.Error())
	}
	return r, nil
}

// splitRange reads a range or an address, with or without a port, which is 0 then.
func splitRange(s string) (p netip.Prefix, port uint16, ok bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 && ap.Addr().Zone() == "" {
		return single(ap.Addr()), ap.Port(), true
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil && a.Zone() == "" {
		return single(a), 0, true
	}
	addr, length, ok := strings.Cut(s, "/")
	if !ok {
		return netip.Prefix{}, 0, false
	}
	length, number, hasPort := strings.Cut(length, ":")
	p, err := netip.ParsePrefix(addr + "/" + length)
	if err == nil && hasPort {
		port, err = parsePort(number)
	}
	return plain(p), port, err == nil
}

func parsePort(s string) (uint16, error) {
	v, err := strconv.ParseUint(s, 10, 16)
	if err != nil || v == 0 || s[0] == '0' || s[0] == '+' {
		return 0, fmt.Errorf("%q is no port from 1 to 65535", clip(s))
	}
	return uint16(v), nil
}

func (p *Policy) clone() *Policy {
	out := &Policy{Limits: p.Limits}
	for _, g := range p.Allow {
		g.Ports = slices.Clone(g.Ports)
		out.Allow = append(out.Allow, g)
	}
	for _, c := range p.Credentials {
		out.Credentials = append(out.Credentials, c.clone())
	}
	return out
}

func (c Credential) clone() Credential {
	c.Source.Command = slices.Clone(c.Source.Command)
	c.Methods = slices.Clone(c.Methods)
	c.Paths = slices.Clone(c.Paths)
	return c
}
