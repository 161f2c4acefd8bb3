package incident

import (
	"net/netip"
	"slices"
	"strings"
)

// Match reports whether an incident is one of them: caller, agent, profile and image fit one of its
// runs, rule and destination one of its alarms and destinations.
func (m Matcher) Match(i *Incident) bool {
	if m.Incident != "" && m.Incident != i.ID {
		return false
	}
	if m.Rule != "" && !slices.ContainsFunc(i.Alarms, func(a Alarm) bool { return m.ofRule(&a) }) {
		return false
	}
	if m.Destination != "" && !slices.ContainsFunc(i.Destinations, func(t Tally) bool { return within(string(t.Name), m.Destination) }) {
		return false
	}
	return m.anyone() || slices.ContainsFunc(i.Parties, m.MatchParty)
}

// MatchParty reports whether one who takes part is the caller, agent, profile and image.
func (m Matcher) MatchParty(r Party) bool {
	uid, name, _ := strings.Cut(strings.TrimSuffix(r.Caller, ")"), " (")
	return (m.Caller == "" || m.Caller == uid || m.Caller == name) &&
		(m.Agent == "" || m.Agent == string(r.Agent)) &&
		(m.Profile == "" || m.Profile == r.Profile) &&
		(m.Image == "" || m.Image == r.Image)
}

func (m Matcher) anyone() bool {
	return m.Caller == "" && m.Agent == "" && m.Profile == "" && m.Image == ""
}

func (m Matcher) ofRule(a *Alarm) bool {
	return a.Rule == m.Rule || strings.HasPrefix(a.Rule, m.Rule+".")
}

// covers reports whether an alarm of an incident is all that a silence is about: there is nothing in
// it that somebody else, or another destination, has a part in.
func (m Matcher) covers(i *Incident, a *Alarm) bool {
	switch {
	case m.Incident != "" && m.Incident != i.ID, m.Rule != "" && !m.ofRule(a):
		return false
	case !m.anyone() && !i.everybody(m.MatchParty):
		return false
	case m.Destination == "":
		return true
	case isAct(a.Rule):
		// What is expected of a host is attempts at it, not that a run also tries to get out.
		return m.Rule != ""
	case a.Rule == "spike.destination":
		return within(string(a.Subject), m.Destination)
	}
	return i.Elsewhere == 0 && !slices.ContainsFunc(i.Destinations, func(t Tally) bool { return !within(string(t.Name), m.Destination) })
}

// within reports whether a destination is a name or one below it, or an address or network of another.
func within(destination, of string) bool {
	if outer, ok := network(of); ok {
		inner, ok := network(destination)
		return ok && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
	}
	destination, of = canonical(destination), canonical(of)
	return destination == of || strings.HasSuffix(destination, "."+of)
}

func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// network reads a network, or an address as one.
func network(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), true
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen()), true
}
