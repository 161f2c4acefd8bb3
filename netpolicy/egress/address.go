package egress

import (
	"encoding/binary"
	"net/netip"
)

// A reach is a kind of addresses that lead to something else than a server on the internet.
type reach struct {
	what   string // as notices call it; empty: nothing is there to be reached
	ranges []netip.Prefix
}

// reaches are the IANA special-purpose registries of IPv4 and IPv6, as far as they are not
// globally reachable, and the places of cloud metadata services.
var reaches = []reach{
	{"private", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10", "64:ff9b:1::/48")},
	{"link-local", prefixes("169.254.0.0/16", "fe80::/10")},
	{"loopback", prefixes("127.0.0.0/8", "::1/128")},
	{"metadata", prefixes(
		"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", // most clouds; containers and pods at AWS
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128", // AWS, Google
		"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", // Azure, Alibaba, Oracle
	)},
	{"", prefixes(
		"0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", // this network, multicast, reserved and broadcast
		"192.0.0.0/24", "192.88.99.0/24", // protocol assignments, 6to4 relays
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", // documentation, benchmarks
		"2001::/23", "2001:db8::/32", "3fff::/20", // protocol assignments, documentation
	)},
}

// unreachable is what not even a CIDR grant leads to: these are no addresses of one host.
var unreachable = prefixes("0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8")

// Ranges whose addresses hold an IPv4 address, to which they lead.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/96") // of its /48 the part that reads in one way only
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
	global     = netip.MustParsePrefix("2000::/3") // all that IANA has given out
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Public reports whether an address is one of a server on the internet, to which a granted
// name may lead. All others are reached by a CIDR grant alone: private, link-local, loopback,
// metadata, multicast, documentation and the like. IPv6 addresses that hold an IPv4 one
// (mapped, NAT64, 6to4, Teredo) are judged by it; of the NAT64 range for local use all
// others are not public, since what they hold depends on the translator. Nor is one with a zone.
func Public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if !a.Is4() {
		b := a.As16()
		switch {
		case nat64.Contains(a), localNAT64.Contains(a):
			return Public(v4(b[12:]))
		case sixToFour.Contains(a):
			return Public(v4(b[2:]))
		case teredo.Contains(a): // the server, and the client with its bits flipped
			return Public(v4(b[4:])) && Public(v4(binary.BigEndian.AppendUint32(nil, ^binary.BigEndian.Uint32(b[12:]))))
		case !global.Contains(a):
			return false
		}
	}
	for _, r := range reaches {
		if contain(r.ranges, a) {
			return false
		}
	}
	return true
}

func v4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[:4])) }

func contain(ranges []netip.Prefix, a netip.Addr) bool {
	for _, r := range ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// within reports whether all of p is in one of the ranges.
func within(ranges []netip.Prefix, p netip.Prefix) bool {
	for _, r := range ranges {
		if r.Bits() <= p.Bits() && r.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// plain is a range with IPv4 written as IPv4. A range of IPv6 that goes beyond the mapped
// addresses stays as it is: those in it are never asked for, since they stand for IPv4.
func plain(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
