package names

import (
	"net/netip"
	"strings"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// A Policy says what is granted. [*egress.Policy] is one.
type Policy interface {
	// Granted says whether name is granted on any port.
	Granted(name string) egress.Decision
	// Host says whether name is granted on this TCP port.
	Host(name string, port uint16) egress.Decision
	// Address says whether a range grants the address on this port; protocol is tcp or udp.
	Address(a netip.Addr, port uint16, protocol string) egress.Decision
}

// A Recorder takes down questions. It is called before the answer leaves, from many
// goroutines, and may wait.
type Recorder interface {
	Query(audit.Query)
}

const (
	maxName  = 253 // bytes of a host name without the last dot
	maxLabel = 63
)

// hostName reports whether s is a host name in its one spelling: labels of lower-case letters,
// digits, hyphens and underscores, without a last dot. Nothing else may reach a policy, where a
// dot inside a label, which DNS allows, would look like one between labels.
func hostName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
		if label++; label > maxLabel {
			return false
		}
	}
	return label > 0
}

// wildcard reports whether the grant stands for more names than the one it spells.
func wildcard(g *egress.Grant) bool { return g == nil || strings.HasPrefix(g.Host, "*.") }
