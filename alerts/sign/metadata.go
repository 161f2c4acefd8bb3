package sign

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"proctor/audit"
)

// metadataRanges are where clouds answer their machines alone, in the words of cloud-init's data
// sources and of the clouds' own documentation. All of the link-local range is one of them: AWS,
// Azure, Google, OpenStack and most others have 169.254.169.254, ECS .170.2, EKS .170.23, Scaleway
// .42.42, Tencent .0.23, and a box has no other use for it (RFC 3927).
var metadataRanges = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fd00:ec2::/32"), // AWS: metadata, pods' identities, DNS and time
}

// metadataAddresses are single ones among others' that are no cloud's.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"),    // Alibaba
	netip.MustParseAddr("168.63.129.16"),      // Azure's WireServer, which knows certificates and settings
	netip.MustParseAddr("192.0.0.192"),        // Oracle's Classic
	netip.MustParseAddr("fd20:ce::254"),       // Google, machines with IPv6 alone
	netip.MustParseAddr("fe80::a9fe:a9fe"),    // OpenStack (Neutron), Hetzner, Akamai
	netip.MustParseAddr("fd00:a9fe:a9fe::1"),  // Akamai
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"), // Oracle
	netip.MustParseAddr("fd00:42::42"),        // Scaleway
	netip.MustParseAddr("fd00:100::100:200"),  // Alibaba
}

// numbers are the addresses that are known where a name has them as one number, hexadecimal or
// decimal. They are few, so that a hash of eight digits is none of them.
var numbers = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// metadataNames are those that the clouds' documentation, or cloud-init, has.
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", // Google
	"instance-data", "instance-data.ec2.internal", // AWS, see below
	"metadata.tencentyun.com",
	"metadata.platformequinix.com", "metadata.packet.net", // Equinix, and what it was before
	"api.metadata.cloud.ibm.com",
	"rancher-metadata", "rancher-metadata.rancher.internal",
}

// metadata returns what metadata service a target is, in its one spelling, or nothing. A target is
// an address or a name as some program wrote it: with a scheme, user, port, brackets, zone or last
// dot, in a spelling of inet_aton or as IPv6 that carries an IPv4 address.
func metadata(target audit.Text) string {
	for _, host := range hosts(string(target)) {
		if a, ok := address(host); ok {
			if a, ok := metadataAddress(a); ok {
				return a.String()
			}
			continue
		}
		// AWS's name of a region: instance-data.eu-west-1.compute.internal.
		if slices.Contains(metadataNames, host) || strings.HasPrefix(host, "instance-data.") && strings.HasSuffix(host, ".compute.internal") {
			return host
		}
		if a, ok := spelled(host); ok {
			return a.String()
		}
	}
	return ""
}

// metadataAddress returns the metadata service's address that a is, or carries.
func metadataAddress(a netip.Addr) (netip.Addr, bool) {
	if !a.IsValid() {
		return a, false
	}
	for _, a := range carried(a.Unmap().WithZone("")) {
		if slices.Contains(metadataAddresses, a) || slices.ContainsFunc(metadataRanges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return a, true
		}
	}
	return a, false
}

// hosts returns what a target's host may be, in lower case. There are two where a port can't be
// told from the end of an address.
func hosts(target string) []string {
	s := strings.ToLower(strings.TrimSpace(target))
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	if _, after, ok := strings.Cut(s, "://"); ok {
		s = after
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		s = s[:i]
	}
	s = s[strings.LastIndexByte(s, '@')+1:]
	if inside, ok := strings.CutPrefix(s, "["); ok {
		inside, _, _ = strings.Cut(inside, "]")
		return []string{inside}
	}
	all := []string{strings.TrimSuffix(s, ".")}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		all = append(all, strings.TrimSuffix(s[:i], "."))
	}
	return all
}

// address reads an address, IPv4 as the C library does.
func address(host string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a, true
	}
	return inetAton(host)
}

// inetAton reads one to four numbers, decimal, octal (0…) or hexadecimal (0x…), of which the last
// fills what is left of the four bytes.
func inetAton(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, part := range parts {
		n, ok := number(part)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		if !ok || n>>bits != 0 {
			return netip.Addr{}, false
		}
		v = v<<bits | n
	}
	return ipv4(v), true
}

func number(s string) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"):
		s, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		base = 8
	}
	n, err := strconv.ParseUint(s, base, 32)
	return n, err == nil
}

func ipv4(v uint64) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// carried returns an address and the IPv4 ones that may stand in it: where a prefix has several
// places for one, all of them.
func carried(a netip.Addr) []netip.Addr {
	all := []netip.Addr{a}
	if a.Is4() {
		return all
	}
	b := a.As16()
	at := func(i ...int) { all = append(all, netip.AddrFrom4([4]byte{b[i[0]], b[i[1]], b[i[2]], b[i[3]]})) }
	within := func(p string) bool { return netip.MustParsePrefix(p).Contains(a) }
	switch {
	case within("::/96"), within("::ffff:0:0:0/96"): // compatible (RFC 4291), translated (RFC 2765)
		at(12, 13, 14, 15)
	case within("64:ff9b::/96"): // NAT64 (RFC 6052)
		at(12, 13, 14, 15)
	case within("64:ff9b:1::/48"): // the same within a network (RFC 8215), whose prefix has 48, 56, 64 or 96 bits
		at(6, 7, 9, 10)
		at(7, 9, 10, 11)
		at(9, 10, 11, 12)
		at(12, 13, 14, 15)
	case within("2002::/16"): // 6to4 (RFC 3056)
		at(2, 3, 4, 5)
	case within("2001::/32"): // Teredo (RFC 4380), which has it inverted
		for i := 12; i < 16; i++ {
			b[i] ^= 0xff
		}
		at(12, 13, 14, 15)
	}
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP (RFC 5214)
		at(12, 13, 14, 15)
	}
	return all
}

// spelled finds an address in the labels of a name, as services have it that resolve a name to the
// address in it (nip.io, sslip.io, rbndr.us and others): 169.254.169.254.nip.io,
// x-169-254-169-254.example, a9fea9fe.nip.io, fd00-ec2--254.sslip.io.
func spelled(name string) (netip.Addr, bool) {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '-' })
	for i, word := range words {
		if i+4 <= len(words) {
			if a, err := netip.ParseAddr(strings.Join(words[i:i+4], ".")); err == nil {
				if a, ok := metadataAddress(a); ok {
					return a, true
				}
			}
		}
		for _, base := range []int{10, 16} {
			v, err := strconv.ParseUint(strings.TrimPrefix(word, "0x"), base, 32)
			if err == nil && slices.Contains(numbers, ipv4(v)) {
				return ipv4(v), true
			}
		}
	}
	for label := range strings.SplitSeq(name, ".") {
		if a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":")); err == nil && a.Is6() {
			if a, ok := metadataAddress(a); ok {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
