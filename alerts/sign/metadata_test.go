package sign

import (
	"net/netip"
	"strings"
	"testing"

	"proctor/audit"
)

// spellings of 169.254.169.254 and of others like it, by what they are.
var spellings = map[string]string{
	"169.254.169.254": "169.254.169.254", "169.254.169.254.": "169.254.169.254", "169.254.169.254:80": "169.254.169.254",
	"http://169.254.169.254/latest": "169.254.169.254", "user:key@169.254.169.254:80": "169.254.169.254", "%31%369.254.169.254": "169.254.169.254",
	// inet_aton
	"2852039166": "169.254.169.254", "2852039166:80": "169.254.169.254", "0xa9fea9fe": "169.254.169.254", "0XA9FEA9FE": "169.254.169.254", "025177524776": "169.254.169.254",
	"169.16689662": "169.254.169.254", "169.254.43518": "169.254.169.254", "0xa9.0376.43518": "169.254.169.254", "0251.0376.0251.0376": "169.254.169.254",
	"0xA9.254.0251.0xfe:80": "169.254.169.254", "0x000000a9.0xfe.0xa9.0xfe": "169.254.169.254", "00000251.254.169.254": "169.254.169.254",
	// IPv6
	"[::ffff:169.254.169.254]": "169.254.169.254", "[::FFFF:a9fe:a9fe]:80": "169.254.169.254", "0:0:0:0:0:ffff:a9fe:a9fe": "169.254.169.254",
	"::169.254.169.254": "169.254.169.254", "::ffff:0:169.254.169.254": "169.254.169.254",
	"64:ff9b::a9fe:a9fe": "169.254.169.254", "[64:ff9b::169.254.169.254]:80": "169.254.169.254",
	"64:ff9b:1::169.254.169.254": "169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::": "169.254.169.254", "64:ff9b:1:ca9:fe:a9fe::": "169.254.169.254", "64:ff9b:1:cafe:a9:fea9:fe00:0": "169.254.169.254",
	"2002:a9fe:a9fe::1": "169.254.169.254", "2001:0:1:2:3:4:5601:5601": "169.254.169.254", "fe80::5efe:169.254.169.254": "169.254.169.254",
	"::a9fe:a9fe%eth0": "169.254.169.254", "[::ffff:a9fe:a9fe%25eth0]:80": "169.254.169.254",
	"[fd00:ec2::254]": "fd00:ec2::254", "[fd00:ec2::254]:80": "fd00:ec2::254", "fd00:ec2::254": "fd00:ec2::254", "FD00:0EC2::254": "fd00:ec2::254", "fd00:ec2::23": "fd00:ec2::23",
	"fd20:ce::254": "fd20:ce::254", "fd20:ce::254:80": "fd20:ce::254", "fe80::a9fe:a9fe": "fe80::a9fe:a9fe", "fe80::a9fe:a9fe%eth0": "fe80::a9fe:a9fe", "[fe80::a9fe:a9fe%25eth0]": "fe80::a9fe:a9fe",
	"fd00:42::42": "fd00:42::42", "fd00:c1::a9fe:a9fe": "fd00:c1::a9fe:a9fe", "fd00:a9fe:a9fe::1": "fd00:a9fe:a9fe::1",
	// other addresses
	"169.254.169.253": "169.254.169.253", "169.254.170.2": "169.254.170.2", "169.254.42.42": "169.254.42.42", "169.254.0.23": "169.254.0.23",
	"168.63.129.16": "168.63.129.16", "2822734096": "168.63.129.16", "192.0.0.192": "192.0.0.192", "100.100.100.200": "100.100.100.200", "64:ff9b::6464:64c8": "100.100.100.200",
	// names
	"metadata": "metadata", "Metadata.Google.Internal.": "metadata.google.internal", "metadata.google.internal:80": "metadata.google.internal", "metadata.goog": "metadata.goog",
	"instance-data": "instance-data", "instance-data.ec2.internal": "instance-data.ec2.internal", "instance-data.eu-west-1.compute.internal": "instance-data.eu-west-1.compute.internal",
	"metadata.tencentyun.com": "metadata.tencentyun.com", "metadata.packet.net": "metadata.packet.net", "metadata.platformequinix.com": "metadata.platformequinix.com",
	"api.metadata.cloud.ibm.com": "api.metadata.cloud.ibm.com", "rancher-metadata": "rancher-metadata",
	// names that spell an address
	"169.254.169.254.nip.io": "169.254.169.254", "x.169.254.169.254.sslip.io": "169.254.169.254", "169-254-169-254.example.com": "169.254.169.254",
	"make-169-254-169-254-rebind-192-0-2-1-rr.example": "169.254.169.254", "a9fea9fe.nip.io": "169.254.169.254", "x-A9FEA9FE.nip.io:80": "169.254.169.254",
	"c0000201.a9fea9fe.rbndr.example": "169.254.169.254", "0xa9fea9fe.example": "169.254.169.254", "2852039166.example": "169.254.169.254",
	"fd00-ec2--254.sslip.io": "fd00:ec2::254", "--ffff-a9fe-a9fe.sslip.io": "169.254.169.254", "--ffff-169-254-169-254.sslip.io": "169.254.169.254",
	"100-100-100-200.nip.io": "100.100.100.200",
}

// Every spelling is a sign wherever a target stands, and none where the run may.
func TestMetadata(t *testing.T) {
	const proxy, other = "192.0.2.54", "198.18.1.1"
	addr := netip.MustParseAddr
	one := func(what string, e audit.Event, is string) {
		t.Helper()
		if got := New().Observe(&e); !Looks(&e) || len(got) != 1 || got[0].Kind != Metadata || !strings.Contains(got[0].What, is) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	none := func(what string, e audit.Event) {
		t.Helper()
		if got := New().Observe(&e); got != nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for s, is := range spellings {
		text := audit.Text(s)
		one("proxy, "+s, audit.Event{Flow: &audit.Flow{Address: addr(proxy), Port: 3128, Proxy: true, Name: text, Decision: audit.Blocked}}, is)
		one("claimed, "+s, audit.Event{Flow: &audit.Flow{Address: addr(other), Name: "api.example", Claimed: text, Decision: audit.Blocked}}, is)
		one("claimed on the way, "+s, audit.Event{Flow: &audit.Flow{Address: addr(other), Name: "api.example", Claimed: text, Decision: audit.Allowed}}, is)
		one("question, "+s, audit.Event{Query: &audit.Query{Name: text, Decision: audit.Blocked}}, is)
		one("host, "+s, audit.Event{Net: &audit.Network{Address: addr(other), Host: text, Decision: audit.Blocked}}, is)
		none("granted proxy, "+s, audit.Event{Flow: &audit.Flow{Address: addr(proxy), Proxy: true, Name: text, Decision: audit.Allowed}})
		none("granted question, "+s, audit.Event{Query: &audit.Query{Name: text, Decision: audit.Allowed}})
		a, err := netip.ParseAddr(s)
		if err != nil {
			continue
		}
		one("connect, "+s, audit.Event{Net: &audit.Network{Address: a, Decision: audit.Blocked}}, is)
		one("flow, "+s, audit.Event{Flow: &audit.Flow{Address: a, Decision: audit.Blocked}}, is)
		one("upstream, "+s, audit.Event{Flow: &audit.Flow{Address: addr(other), Name: "evil.example", Upstream: netip.AddrPortFrom(a, 80), Decision: audit.Blocked}}, is)
		none("granted, "+s, audit.Event{Net: &audit.Network{Address: a, Decision: audit.Allowed}})
		none("bind, "+s, audit.Event{Net: &audit.Network{Address: a}})
	}
}

func TestNotMetadata(t *testing.T) {
	for _, s := range []audit.Text{
		"", ".", "..", ":", "[", "[]", "@", "%", "metadata.example.com", "my-metadata.org", "xmetadata", "metadata.google.internal.example.com", "instance-data.example.com",
		"1.2.3.4.example.com", "1.2.3.4", "v169.254.example.com", "169.254.example.com", "254.169.254.169.in-addr.arpa", "169.254", "169", "0xa9fe", "0xa9fe.example",
		"a9feb001.example.com", "d41d8cd98f00b204e9800998ecf8427e.example.com", "169.253.169.254", "170.254.169.254", "168.63.129.17", "192.0.0.1", "100.100.100.201",
		"fe80::1", "fd00::1", "fd20:ce::253", "2001:db8::a9fe:a9fe", "64:ff9b::808:808", "2002:808:808::1", "::1", "::", "0", "0.0.0.0", "256.254.169.254", "169.254.169.256",
		"cafe.example", "dead-beef.example", "--1.sslip.io", "0xa9fea9fe0", "\xff\x00", "localhost", "api.example:443",
	} {
		if got := metadata(s); got != "" {
			t.Errorf("%q is taken for %s", s, got)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	for s := range spellings {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := audit.Event{Flow: &audit.Flow{Name: audit.Text(s), Decision: audit.Blocked}}
		is := metadata(audit.Text(s))
		if got := New().Observe(&e); (is != "") != (len(got) == 1) {
			t.Errorf("%q: %q, %+v", s, is, got)
		}
		if is != "" && metadata(audit.Text(is)) != is {
			t.Errorf("%q has no one spelling: %q", s, is)
		}
	})
}
