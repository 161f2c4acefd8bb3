package egress

import (
	"net/netip"
	"testing"
)

func TestPublic(t *testing.T) {
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.1", "126.255.255.255",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
		"168.63.129.15", "::ffff:1.1.1.1",
		"2606:4700::1111", "2001:4860:4860::8888", "2a00::1", "2001:200::1", "2001:db7::1", "2001:db9::1",
		"64:ff9b::1.1.1.1", "64:ff9b:1::1.1.1.1", "2002:101:101::1",
		"2001:0:808:808::fefe:fefe", // Teredo: server 8.8.8.8, client 1.1.1.1
	} {
		if !Public(netip.MustParseAddr(s)) {
			t.Errorf("%s is public", s)
		}
	}
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.7", "192.88.99.1", "192.168.0.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"168.63.129.16",
		"::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
		"::", "::1", "::10.0.0.1", "::1.1.1.1", "fe80::1", "fe80::1%eth0", "2606:4700::1111%eth0", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fec0::1",
		"ff02::1", "ff0e::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1",
		"2001:2::1", "2001:10::1", "2001:20::1", "2001:1::1",
		"64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b:1::10.0.0.1",
		"64:ff9b:1:a00:0:100:808:808", // 8.8.8.8 in its last bits, and 10.0.0.1 where a /48 has it
		"2002:a00:1::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1",
		"2001:0:808:808::f5ff:fffe", // Teredo client 10.0.0.1
		"2001:0:a00:1::fefe:fefe",   // Teredo server 10.0.0.1
	} {
		if Public(netip.MustParseAddr(s)) {
			t.Errorf("%s is not public", s)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// An IPv6 address is never more public than the IPv4 address it holds.
func FuzzPublic(f *testing.F) {
	f.Add([]byte{10, 0, 0, 1})
	f.Add([]byte{1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != 4 {
			return
		}
		inner := v4(b)
		want := Public(inner)
		mapped := netip.AddrFrom16(inner.As16())
		wide := netip.MustParseAddr("64:ff9b::").As16()
		copy(wide[12:], b)
		six := netip.MustParseAddr("2002::1").As16()
		copy(six[2:], b)
		for _, a := range []netip.Addr{mapped, netip.AddrFrom16(wide), netip.AddrFrom16(six)} {
			if Public(a) != want {
				t.Errorf("%s: public %v, %s: %v", a, !want, inner, want)
			}
		}
	})
}
