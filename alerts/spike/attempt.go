package spike

import (
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"

	"proctor/audit"
)

// Counts reports whether an event is one that a Detector counts: what it does with another is
// nothing.
func Counts(e *audit.Event) bool {
	return e.Blocked() || e.Start != nil || e.Kind == audit.KindEnd
}

// Attempts is how many blocked attempts an event stands for, and at what: a registrable domain or
// a network. It is 0 for every other event.
func Attempts(e *audit.Event) (n uint64, destination string) {
	switch {
	case !e.Blocked():
		return 0, ""
	case e.Net != nil:
		return e.Acts(), destinationOf(e.Net.Host, e.Net.Address)
	case e.Query != nil:
		return e.Acts(), destinationOf(e.Query.Name, netip.Addr{})
	default:
		name := e.Flow.Name
		if name == "" {
			name = e.Flow.Claimed
		}
		return max(1, uint64(max(0, e.Flow.Count))), destinationOf(name, e.Flow.Address)
	}
}

// Group is what a name or address is counted by: a registrable domain or a network, each of which is
// its own.
func Group(name audit.Text) string {
	if _, err := netip.ParsePrefix(string(name)); err == nil {
		return string(name)
	}
	return destinationOf(name, netip.Addr{})
}

// maxName is what is kept of a name that has no registrable domain, in bytes: that of the DNS.
const maxName = 253

func destinationOf(name audit.Text, addr netip.Addr) string {
	if name != "" {
		host := lower(strings.TrimSuffix(string(name), "."))
		if a, err := netip.ParseAddr(host); err == nil {
			return network(a)
		}
		if domain, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
			host = domain
		}
		return host[:min(len(host), maxName)]
	}
	return network(addr)
}

// lower is for ASCII alone, and leaves other bytes as they are.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// nowhere is for an attempt at nothing that has a name or an address.
const nowhere = "no address"

func network(a netip.Addr) string {
	if !a.IsValid() {
		return nowhere
	}
	a = a.Unmap().WithZone("")
	bits := 24
	if a.Is6() {
		bits = 48
	}
	return netip.PrefixFrom(a, bits).Masked().String()
}
