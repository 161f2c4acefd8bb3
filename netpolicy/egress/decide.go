package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// noNetwork is why nothing is allowed where nothing is granted.
const noNetwork = "no network granted"

// String is the grant in one word, such as api.example.com:443, *.files.example.com:80,443 or
// 203.0.113.0/24:5432/tcp.
func (g *Grant) String() string {
	if g.Host != "" {
		return g.Host + ":" + portList(g.Ports)
	}
	return g.CIDR.String() + ":" + portList(g.Ports) + "/" + g.Protocol
}

func portList(ports []uint16) string {
	var b strings.Builder
	for i, p := range ports {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(p)))
	}
	return b.String()
}

// wildcard is the name after "*.".
func (g *Grant) wildcard() (rest string, ok bool) { return strings.CutPrefix(g.Host, "*.") }

// covers reports whether a canonical name is the grant's. "*.b" is not: it is no name.
func (g *Grant) covers(name string) bool {
	if rest, ok := g.wildcard(); ok {
		return under(name, rest)
	}
	return g.Host != "" && g.Host == name
}

// under reports whether name has one or more labels before rest.
func under(name, rest string) bool {
	n := len(name) - len(rest)
	return n > 1 && name[n:] == rest && name[n-1] == '.'
}

// closer reports whether g says more exactly than other which name it means. Among the grants
// that open a port of a name, the closest one decides.
func (g *Grant) closer(other *Grant) bool {
	_, wild := g.wildcard()
	_, otherWild := other.wildcard()
	if wild != otherWild {
		return otherWild
	}
	return len(g.Host) > len(other.Host)
}

// Host decides whether a name is granted for TCP to a port. Any spelling of a name will do. It
// says nothing about the addresses that the name leads to: see [Public] and [Policy.Address].
func (p *Policy) Host(name string, port uint16) Decision {
	return p.host(name, func(g *Grant) bool { return slices.Contains(g.Ports, port) })
}

// Granted decides whether a name is granted on any port, so that it has an address.
func (p *Policy) Granted(name string) Decision {
	return p.host(name, func(g *Grant) bool { return len(g.Ports) > 0 })
}

func (p *Policy) host(name string, opens func(*Grant) bool) Decision {
	if len(p.Allow) == 0 {
		return Decision{Rule: noNetwork}
	}
	canonical, err := Canonical(name)
	if err != nil {
		return Decision{Rule: err.Error()}
	}
	var (
		best  *Grant
		ports []uint16
	)
	for i := range p.Allow {
		g := &p.Allow[i]
		if !g.covers(canonical) {
			continue
		}
		ports = append(ports, g.Ports...)
		if opens(g) && (best == nil || g.closer(best)) {
			best = g
		}
	}
	if best != nil {
		return Decision{Allowed: true, Rule: best.String(), Grant: best}
	}
	places := make([]string, 0, len(ports))
	for _, port := range sorted(ports) {
		places = append(places, strconv.Itoa(int(port)))
	}
	return refused(canonical, places)
}

// Address decides whether a range of addresses is granted that has this one, for a port and a
// protocol, tcp or udp. An IPv4-mapped address is the IPv4 one; one with a zone is never granted.
func (p *Policy) Address(a netip.Addr, port uint16, protocol string) Decision {
	if len(p.Allow) == 0 {
		return Decision{Rule: noNetwork}
	}
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || contain(unreachable, a) {
		return Decision{Rule: fmt.Sprintf("%q is not the address of one host", clip(a.String()))}
	}
	var (
		best   *Grant
		places []string
	)
	for i := range p.Allow {
		g := &p.Allow[i]
		if g.Host != "" || !g.CIDR.Contains(a) {
			continue
		}
		for _, port := range g.Ports {
			places = append(places, fmt.Sprintf("%d/%s", port, g.Protocol))
		}
		if g.Protocol == protocol && slices.Contains(g.Ports, port) && (best == nil || g.CIDR.Bits() > best.CIDR.Bits()) {
			best = g
		}
	}
	if best != nil {
		return Decision{Allowed: true, Rule: best.String(), Grant: best}
	}
	slices.Sort(places)
	return refused(a.String(), slices.Compact(places))
}

// refused says where else the destination is granted, if at all. What stands here is canonical,
// so it needs no quotes.
func refused(what string, places []string) Decision {
	switch n := len(places); {
	case n == 0:
		return Decision{Rule: what + " is not granted"}
	case n == 1:
		return Decision{Rule: fmt.Sprintf("%s is granted on %s only", what, places[0])}
	case n > 16: // a record's rule stays readable
		return Decision{Rule: fmt.Sprintf("%s is granted on %s and %d more ports only", what, strings.Join(places[:15], ", "), n-15)}
	default:
		return Decision{Rule: fmt.Sprintf("%s is granted on %s and %s only", what, strings.Join(places[:n-1], ", "), places[n-1])}
	}
}

func sorted(ports []uint16) []uint16 {
	ports = slices.Clone(ports)
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Credential is the one of exactly this host, in any spelling, or nil. It is the policy's own,
// not to be changed.
func (p *Policy) Credential(name string) *Credential {
	canonical, err := Canonical(name)
	if err != nil {
		return nil
	}
	for i := range p.Credentials {
		if p.Credentials[i].Host == canonical {
			return &p.Credentials[i]
		}
	}
	return nil
}
