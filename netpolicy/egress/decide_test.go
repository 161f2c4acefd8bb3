package egress

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const grants = `
egress:
  allow:
    - {host: api.example.com}
    - {host: api.example.com, ports: [80, 8443]}
    - {host: "*.files.example.com"}
    - {host: "*.deep.files.example.com", ports: [443, 444], websocket: true}
    - {host: one.files.example.com, ports: [443, 80]}
    - {host: allowed.example, ports: [443]}
    - {cidr: 203.0.113.0/24, ports: [5432]}
    - {cidr: 203.0.113.128/25, ports: [5432, 99]}
    - {cidr: 203.0.113.0/24, ports: [123], protocol: udp}
    - {cidr: 10.0.0.0/8, ports: [22]}
    - {cidr: 2001:db8::/32, ports: [443]}
    - {cidr: 0.0.0.0/0, ports: [7], protocol: udp}
`

func TestHost(t *testing.T) {
	p := mustRead(t, grants)
	for _, test := range []struct {
		name string
		port uint16
		rule string
		ok   bool
	}{
		{"api.example.com", 443, "api.example.com:443", true},
		{"API.EXAMPLE.COM.", 443, "api.example.com:443", true},
		{"api.example.com", 8443, "api.example.com:80,8443", true},
		{"api.example.com", 22, "api.example.com is granted on 80, 443 and 8443 only", false},
		{"api.example.com", 0, "api.example.com is granted on 80, 443 and 8443 only", false},
		{"allowed.example", 80, "allowed.example is granted on 443 only", false},
		{"allowed.example", 443, "allowed.example:443", true},
		{"xallowed.example", 443, "xallowed.example is not granted", false},
		{"allowed.example.other", 443, "allowed.example.other is not granted", false},
		{"x.allowed.example", 443, "x.allowed.example is not granted", false},
		{"allowed.exampl", 443, "allowed.exampl is not granted", false},
		{"example", 443, "example is not granted", false},
		{"com", 443, "com is not granted", false},
		{"a.files.example.com", 443, "*.files.example.com:443", true},
		{"a.b.files.example.com", 443, "*.files.example.com:443", true},
		{"files.example.com", 443, "files.example.com is not granted", false},
		{"xfiles.example.com", 443, "xfiles.example.com is not granted", false},
		{"a.xfiles.example.com", 443, "a.xfiles.example.com is not granted", false},
		{"a.files.example.com.evil.example", 443, "a.files.example.com.evil.example is not granted", false},
		{"a.deep.files.example.com", 443, "*.deep.files.example.com:443,444", true},
		{"deep.files.example.com", 444, "deep.files.example.com is granted on 443 only", false},
		{"one.files.example.com", 443, "one.files.example.com:80,443", true},
		{"one.files.example.com", 80, "one.files.example.com:80,443", true},
		{"two.files.example.com", 80, "two.files.example.com is granted on 443 only", false},
		{"*.files.example.com", 443, `"*.files.example.com" has '*', which no host name has`, false},
		{".files.example.com", 443, `".files.example.com" has an empty label`, false},
		{"a\n.files.example.com", 443, `"a\n.files.example.com" has '\n', which no host name has`, false},
		{"203.0.113.7", 5432, `"203.0.113.7" is an address, not a name`, false},
		{"", 443, "the host name is empty", false},
	} {
		d := p.Host(test.name, test.port)
		if d.Allowed != test.ok || d.Rule != test.rule || (d.Grant != nil) != test.ok {
			t.Errorf("%q %d: %+v, want %v, %q", test.name, test.port, d, test.ok, test.rule)
		}
		if d.Allowed && !slices.Contains(d.Grant.Ports, test.port) {
			t.Errorf("%q %d: by %v", test.name, test.port, d.Grant)
		}
	}
	if d := p.Host("a.deep.files.example.com", 443); !d.Grant.WebSocket {
		t.Error("the closest grant does not decide")
	}
}

func TestGranted(t *testing.T) {
	p := mustRead(t, grants)
	for name, ok := range map[string]bool{
		"api.example.com": true, "Api.Example.com.": true, "x.files.example.com": true, "files.example.com": false,
		"xapi.example.com": false, "203.0.113.7": false, "": false,
	} {
		if d := p.Granted(name); d.Allowed != ok || d.Rule == "" {
			t.Errorf("%q: %+v", name, d)
		}
	}
	if d := p.Granted("packages.example"); d.Rule != "packages.example is not granted" {
		t.Errorf("%+v", d)
	}
	if d := (&Policy{}).Granted("packages.example"); d.Allowed || d.Rule != "no network granted" {
		t.Errorf("%+v", d)
	}
	// What was never checked grants nothing by accident.
	if d := (&Policy{Allow: []Grant{{}, {Host: "a.example"}}}).Granted("a.example"); d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestAddress(t *testing.T) {
	p := mustRead(t, grants)
	for _, test := range []struct {
		address  string
		port     uint16
		protocol string
		rule     string
		ok       bool
	}{
		{"203.0.113.7", 5432, "tcp", "203.0.113.0/24:5432/tcp", true},
		{"::ffff:203.0.113.7", 5432, "tcp", "203.0.113.0/24:5432/tcp", true},
		{"203.0.113.200", 5432, "tcp", "203.0.113.128/25:99,5432/tcp", true},
		{"203.0.113.7", 99, "tcp", "203.0.113.7 is granted on 123/udp, 5432/tcp and 7/udp only", false},
		{"203.0.113.7", 5432, "udp", "203.0.113.7 is granted on 123/udp, 5432/tcp and 7/udp only", false},
		{"203.0.113.7", 123, "udp", "203.0.113.0/24:123/udp", true},
		{"203.0.113.7", 123, "sctp", "203.0.113.7 is granted on 123/udp, 5432/tcp and 7/udp only", false},
		{"203.0.113.7", 123, "", "203.0.113.7 is granted on 123/udp, 5432/tcp and 7/udp only", false},
		{"198.51.100.7", 443, "tcp", "198.51.100.7 is granted on 7/udp only", false},
		{"10.1.2.3", 22, "tcp", "10.0.0.0/8:22/tcp", true},
		{"11.1.2.3", 22, "tcp", "11.1.2.3 is granted on 7/udp only", false},
		{"2001:db8::7", 443, "tcp", "2001:db8::/32:443/tcp", true},
		{"2001:db9::7", 443, "tcp", "2001:db9::7 is not granted", false},
		{"::7", 7, "udp", "::7 is not granted", false},
		{"fe80::1%eth0", 443, "tcp", `"fe80::1%eth0" is not the address of one host`, false},
		{"239.1.2.3", 7, "udp", `"239.1.2.3" is not the address of one host`, false},
		{"255.255.255.255", 7, "udp", `"255.255.255.255" is not the address of one host`, false},
		{"0.0.0.0", 7, "udp", `"0.0.0.0" is not the address of one host`, false},
		{"127.0.0.1", 7, "udp", "0.0.0.0/0:7/udp", true},
	} {
		d := p.Address(netip.MustParseAddr(test.address), test.port, test.protocol)
		if d.Allowed != test.ok || d.Rule != test.rule || (d.Grant != nil) != test.ok {
			t.Errorf("%s %d %s: %+v, want %v, %q", test.address, test.port, test.protocol, d, test.ok, test.rule)
		}
	}
	if d := p.Address(netip.Addr{}, 443, "tcp"); d.Allowed {
		t.Errorf("no address: %+v", d)
	}
	if d := (&Policy{}).Address(netip.MustParseAddr("10.0.0.1"), 22, "tcp"); d.Allowed || d.Rule != "no network granted" {
		t.Errorf("%+v", d)
	}
}

func TestAddressManyPorts(t *testing.T) {
	p := mustRead(t, `
egress:
  allow:
    - {cidr: 203.0.113.0/24, ports: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}
    - {cidr: 203.0.113.0/25, ports: [17,18]}
`)
	want := "203.0.113.7 is granted on 1/tcp, 10/tcp, 11/tcp, 12/tcp, 13/tcp, 14/tcp, 15/tcp, 16/tcp, 17/tcp, 18/tcp, 2/tcp, 3/tcp, 4/tcp, 5/tcp, 6/tcp and 3 more ports only"
	if d := p.Address(netip.MustParseAddr("203.0.113.7"), 99, "tcp"); d.Rule != want {
		t.Errorf("%q", d.Rule)
	}
}

func TestCredentialOfHost(t *testing.T) {
	p := mustRead(t, full)
	for name, want := range map[string]string{
		"api.example.com": "api", "API.example.com.": "api", "bücher.example": "d", "y.files.example.com": "c",
		"xapi.example.com": "", "a.api.example.com": "", "files.example.com": "", "a.y.files.example.com": "", "": "",
	} {
		got := ""
		if c := p.Credential(name); c != nil {
			got = c.Name
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestPrefixes(t *testing.T) {
	p := mustRead(t, grants)
	pre := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	want := []Range{
		{pre("0.0.0.0/0"), "udp", []uint16{7}},
		{pre("10.0.0.0/8"), "tcp", []uint16{22}},
		{pre("203.0.113.0/24"), "tcp", []uint16{5432}},
		{pre("203.0.113.0/24"), "udp", []uint16{7, 123}},
		{pre("203.0.113.128/25"), "tcp", []uint16{99, 5432}},
		{pre("2001:db8::/32"), "tcp", []uint16{443}},
	}
	if diff := cmp.Diff(want, p.Prefixes(), compare); diff != "" {
		t.Error(diff)
	}
	if got := (&Policy{}).Prefixes(); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestNotices(t *testing.T) {
	for content, want := range map[string][]string{
		"{cidr: 10.0.0.0/8, ports: [1]}, {cidr: 10.0.0.0/8, ports: [2]}": {"10.0.0.0/8 reaches private addresses"},
		"{cidr: 10.1.2.3/32, ports: [1]}":                                {"10.1.2.3/32 reaches private addresses"},
		"{cidr: 169.254.169.254/32, ports: [80]}":                        {"169.254.169.254/32 reaches link-local and metadata addresses"},
		"{cidr: 127.0.0.0/8, ports: [80]}":                               {"127.0.0.0/8 reaches loopback addresses"},
		"{cidr: 168.63.129.16/32, ports: [80]}":                          {"168.63.129.16/32 reaches metadata addresses"},
		"{cidr: 128.0.0.0/1, ports: [80]}":                               {"128.0.0.0/1 reaches private, link-local and metadata addresses"},
		"{cidr: fd00:ec2::/64, ports: [80]}":                             {"fd00:ec2::/64 reaches private and metadata addresses"},
		"{cidr: ::ffff:127.0.0.0/104, ports: [80]}":                      {"127.0.0.0/8 reaches loopback addresses"},
		"{cidr: 0.0.0.0/0, ports: [80]}":                                 {"0.0.0.0/0 reaches every address, also private, link-local, loopback and metadata addresses"},
		"{cidr: 203.0.113.0/24, ports: [80]}, {host: a.example}":         nil,
		"{host: \"*.github.io\"}, {host: a.github.io}":                   {"*.github.io reaches names that anybody can have under github.io"},
		"{host: \"*.a.github.io\"}, {host: \"*.a.example\"}":             nil,
	} {
		p := mustRead(t, "egress: {allow: ["+content+"]}")
		if diff := cmp.Diff(want, p.Notices()); diff != "" {
			t.Errorf("%s: %s", content, diff)
		}
	}
}
