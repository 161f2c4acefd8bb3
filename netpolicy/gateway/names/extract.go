package names

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	maxAliases   = 16 // of a name, one behind the other
	maxAddresses = 64 // of a name that are kept
)

// extract finds what the answer says of k. Only records on the way from the name through its
// aliases count: the rest of what a server sends is nobody's question.
func extract(m *dns.Msg, k key) Answer {
	if m.Rcode == dns.RcodeNameError {
		return Answer{Status: NoName, TTL: negativeTTL(m)}
	}
	owner, ttl := k.name+".", maxTTL
	for range maxAliases {
		var alias *dns.CNAME
		var found []netip.Addr
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, owner) {
				continue
			}
			var a netip.Addr
			switch rr := rr.(type) {
			case *dns.A:
				if k.family == IPv4 {
					a, _ = netip.AddrFromSlice(rr.A.To4())
				}
			case *dns.AAAA:
				if k.family == IPv6 {
					a, _ = netip.AddrFromSlice(rr.AAAA.To16())
				}
			case *dns.CNAME:
				if alias == nil {
					alias = rr
				}
			}
			if a.IsValid() && len(found) < maxAddresses && !slices.Contains(found, a) {
				found, ttl = append(found, a), min(ttl, seconds(h.Ttl))
			}
		}
		if found != nil {
			return Answer{Status: Found, Addresses: found, TTL: ttl}
		}
		if alias == nil {
			break
		}
		owner, ttl = alias.Target, min(ttl, seconds(alias.Hdr.Ttl))
	}
	return Answer{Status: NoAddress, TTL: min(ttl, negativeTTL(m))}
}

// negativeTTL is how long it holds that there is nothing (RFC 2308); zero where the answer does
// not say.
func negativeTTL(m *dns.Msg) time.Duration {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(maxNegativeTTL, seconds(soa.Hdr.Ttl), seconds(soa.Minttl))
		}
	}
	return 0
}

// seconds is a TTL; one with the highest bit set is zero (RFC 2181, 8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
