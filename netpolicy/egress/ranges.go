package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// A Range is the addresses that CIDR grants open for one protocol.
type Range struct {
	Prefix   netip.Prefix // masked, IPv4-mapped ones as IPv4
	Protocol string       // tcp or udp
	Ports    []uint16     // in order
}

// Prefixes are the CIDR grants as a longest-prefix lookup needs them: one for each range and
// protocol, which has the ports of the ranges around it, too. A range may therefore have more
// than 16 ports. They are in order of address, length and protocol.
func (p *Policy) Prefixes() []Range {
	var list []Range
	for i := range p.Allow {
		g := &p.Allow[i]
		if g.Host != "" || slices.ContainsFunc(list, func(r Range) bool { return r.Prefix == g.CIDR && r.Protocol == g.Protocol }) {
			continue
		}
		r := Range{Prefix: g.CIDR, Protocol: g.Protocol}
		for _, around := range p.Allow {
			if around.Host == "" && around.Protocol == g.Protocol && within([]netip.Prefix{around.CIDR}, g.CIDR) {
				r.Ports = append(r.Ports, around.Ports...)
			}
		}
		r.Ports = sorted(r.Ports)
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Range) int {
		if c := a.Prefix.Compare(b.Prefix); c != 0 {
			return c
		}
		return strings.Compare(a.Protocol, b.Protocol)
	})
	return list
}

// Notices say what of the grants is worth a second look, one line each, such as "10.0.0.0/8
// reaches private addresses". They are no errors.
func (p *Policy) Notices() []string {
	var list []string
	add := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	for i := range p.Allow {
		g := &p.Allow[i]
		if rest, wild := g.wildcard(); wild {
			if suffix, _ := publicsuffix.PublicSuffix(rest); suffix == rest {
				add("%s reaches names that anybody can have under %s", g.Host, rest)
			}
		}
		if g.Host != "" {
			continue
		}
		var kinds []string
		for _, r := range reaches {
			if r.what != "" && slices.ContainsFunc(r.ranges, g.CIDR.Overlaps) {
				kinds = append(kinds, r.what)
			}
		}
		switch n := len(kinds); {
		case g.CIDR.Bits() == 0:
			add("%s reaches every address, also private, link-local, loopback and metadata addresses", g.CIDR)
		case n == 1:
			add("%s reaches %s addresses", g.CIDR, kinds[0])
		case n > 1:
			add("%s reaches %s and %s addresses", g.CIDR, strings.Join(kinds[:n-1], ", "), kinds[n-1])
		}
	}
	return list
}
