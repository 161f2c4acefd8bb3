package relay

import (
	"net/netip"
	"strconv"
	"strings"
)

// A target is what a client wants to reach. Exactly one of name and addr is set.
type target struct {
	name string // in its one spelling
	addr netip.Addr
	port uint16
}

// host is the target without its port, as it stands in a URL.
func (t target) host() string {
	switch {
	case t.name != "":
		return t.name
	case t.addr.Is6():
		return "[" + t.addr.String() + "]"
	}
	return t.addr.String()
}

// plain is the target's name, or its address.
func (t target) plain() string {
	if t.name != "" {
		return t.name
	}
	return t.addr.String()
}

func (t target) String() string { return t.host() + ":" + strconv.Itoa(int(t.port)) }

// canonical gives a host name its one spelling. A name that some program could take for an
// address, such as 127.1 or 0x7f000001, is none.
func canonical(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return "", false
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			return "", false
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return "", false
			}
		}
	}
	last := strings.ToLower(labels[len(labels)-1])
	if strings.Trim(last, "0123456789") == "" {
		return "", false
	}
	if hex, ok := strings.CutPrefix(last, "0x"); ok && strings.Trim(hex, "0123456789abcdef") == "" {
		return "", false
	}
	return strings.ToLower(name), true
}

// parseTarget reads "host" or "host:port". An address is read as one only in the spelling
// that it has in every program: four decimal numbers, or IPv6 in brackets.
func parseTarget(s string, defaultPort uint16) (t target, ported, ok bool) {
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return target{}, false, false
		}
		host, port = s[1:end], s[end+1:]
		if port != "" && port[0] != ':' {
			return target{}, false, false
		}
		a, err := netip.ParseAddr(host)
		if err != nil || !a.Is6() || a.Zone() != "" {
			return target{}, false, false
		}
		t.addr = a.Unmap()
	} else {
		if i := strings.IndexByte(s, ':'); i >= 0 {
			host, port = s[:i], s[i:]
		}
		if a, err := netip.ParseAddr(host); err == nil {
			t.addr = a
		} else if t.name, ok = canonical(host); !ok {
			return target{}, false, false
		}
	}
	t.port = defaultPort
	if port != "" {
		p, err := strconv.ParseUint(port[1:], 10, 16)
		if err != nil || p == 0 || strconv.FormatUint(p, 10) != port[1:] {
			return target{}, false, false
		}
		t.port = uint16(p)
		ported = true
	}
	return t, ported, t.port != 0
}
