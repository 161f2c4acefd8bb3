package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func names(p *Policy) string {
	var list []string
	for i := range p.Allow {
		s := p.Allow[i].String()
		if p.Allow[i].WebSocket {
			s += "+ws"
		}
		list = append(list, s)
	}
	return strings.Join(list, " ")
}

func TestNarrow(t *testing.T) {
	p := mustRead(t, grants)
	before := names(p)
	for _, test := range []struct{ allow, want string }{
		{"api.example.com", "api.example.com:443 api.example.com:80,8443"},
		{"API.example.com.", "api.example.com:443 api.example.com:80,8443"},
		{"api.example.com:443", "api.example.com:443"},
		{"api.example.com:8443", "api.example.com:8443"},
		{"api.example.com:443 api.example.com:80 api.example.com", "api.example.com:443 api.example.com:80 api.example.com:8443"},
		{"x.files.example.com", "x.files.example.com:443"},
		{"*.x.files.example.com", "*.x.files.example.com:443"},
		{"*.files.example.com", "one.files.example.com:80,443 *.deep.files.example.com:443,444+ws *.files.example.com:443"},
		{"*.files.example.com:443", "one.files.example.com:443 *.deep.files.example.com:443+ws *.files.example.com:443"},
		{"*.x.deep.files.example.com:443", "*.x.deep.files.example.com:443+ws"}, // the closest grant's
		{"one.files.example.com:443", "one.files.example.com:443"},
		{"203.0.113.7", "203.0.113.7/32:5432/tcp 203.0.113.7/32:123/udp 203.0.113.7/32:7/udp"},
		{"203.0.113.7:5432", "203.0.113.7/32:5432/tcp"},
		{"203.0.113.7/32:5432/tcp", "203.0.113.7/32:5432/tcp"},
		{"203.0.113.7/udp", "203.0.113.7/32:123/udp 203.0.113.7/32:7/udp"},
		{"203.0.113.0/24:5432", "203.0.113.0/24:5432/tcp 203.0.113.128/25:5432/tcp"},
		{"::ffff:203.0.113.0/120:5432", "203.0.113.0/24:5432/tcp 203.0.113.128/25:5432/tcp"},
		{"2001:db8::/48:443", "2001:db8::/48:443/tcp"},
		{"2001:db8::7", "2001:db8::7/128:443/tcp"},
		{"[2001:db8::7]:443", "2001:db8::7/128:443/tcp"},
		{"[2001:db8::7]", "2001:db8::7/128:443/tcp"},
		{"10.0.0.0/9", "10.0.0.0/9:22/tcp 10.0.0.0/9:7/udp"},
		{"allowed.example api.example.com:443", "allowed.example:443 api.example.com:443"},
	} {
		got, err := p.Narrow(Narrowing{Allow: strings.Fields(test.allow)})
		if err != nil || names(got) != test.want {
			t.Errorf("%s: %v, %v\nwant %s", test.allow, got, err, test.want)
		}
	}
	if got := names(p); got != before {
		t.Errorf("the policy became %s", got)
	}
}

func TestNarrowNothingAndAll(t *testing.T) {
	p := mustRead(t, full)
	none, err := p.Narrow(Narrowing{Deny: true})
	if err != nil || len(none.Allow) > 0 || len(none.Credentials) > 0 || none.Limits != p.Limits {
		t.Errorf("%+v, %v", none, err)
	}
	all, err := p.Narrow(Narrowing{})
	if err != nil || names(all) != names(p) || len(all.Credentials) != len(p.Credentials) {
		t.Fatalf("%+v, %v", all, err)
	}
	all.Allow[0].Ports[0] = 1
	all.Credentials[0].Paths[0] = "/"
	if p.Allow[0].Ports[0] != 443 || p.Credentials[0].Paths[0] != "/v1/models*" {
		t.Error("what is left shares memory with the policy")
	}
}

// A credential stays with its host and port 443.
func TestNarrowCredentials(t *testing.T) {
	p := mustRead(t, full)
	for allow, want := range map[string]string{
		"api.example.com":       "api",
		"api.example.com:443":   "api",
		"api.example.com:8443":  "",
		"y.files.example.com":   "c",
		"*.files.example.com":   "b c e",
		"*.y.files.example.com": "",
		"bücher.example":        "d",
		"203.0.113.0/24":        "",
	} {
		got, err := p.Narrow(Narrowing{Allow: []string{allow}})
		if err != nil {
			t.Errorf("%s: %v", allow, err)
			continue
		}
		var list []string
		for _, c := range got.Credentials {
			list = append(list, c.Name)
		}
		if strings.Join(list, " ") != want {
			t.Errorf("%s: %v, want %s", allow, list, want)
		}
	}
}

func TestNarrowRefuses(t *testing.T) {
	p := mustRead(t, grants)
	const (
		outside = "is not inside one grant of the profile (api.example.com:443, api.example.com:80,8443, *.files.example.com:443, "
		write   = "write a host or a range"
	)
	for allow, says := range map[string]string{
		"other.example":           `allow "other.example": ` + outside,
		"xallowed.example":        outside,
		"allowed.example.other":   outside,
		"allowed.example:80":      outside,
		"api.example.com:22":      outside,
		"example.com":             outside,
		"*.example.com":           outside,
		"*.api.example.com":       outside,
		"*.allowed.example":       outside,
		"files.example.com":       outside,
		"x.files.example.com:444": outside,
		"203.0.112.0/23:5432":     outside,
		"203.0.113.7:22":          outside,
		"203.0.113.7:5432/udp":    outside,
		"0.0.0.0/0:22":            outside,
		"::/0":                    outside,
		"2001:db8::/31":           outside,
		"fe80::1":                 outside,
		"203.0.113.7/24":          "has bits set past its length: write 203.0.113.0/24, or 203.0.113.7/32",
		"239.1.2.3/32:7/udp":      "holds no address of one host",
		"":                        write,
		"*":                       "has * elsewhere",
		"*.com":                   "everything under a top-level domain",
		"a..example":              "empty label",
		"api.example.com:":        "HOST:PORT",
		"api.example.com:0":       "HOST:PORT",
		"api.example.com:443:443": "HOST:PORT",
		"api.example.com:https":   "HOST:PORT",
		"api.example.com:00443":   "HOST:PORT",
		"api.example.com/tcp":     "write a protocol with addresses alone",
		"https://api.example.com": "HOST:PORT",
		"api.example.com/path":    "is a URL",
		"203.0.113.7:0":           "",
		"fe80::1%eth0":            "",
		"203.0.113.0/24:99999":    "",
		"203.0.113.0/24/8":        "",
		"a\nb":                    `allow "a\nb": `,
		strings.Repeat("a", 5000): "",
	} {
		got, err := p.Narrow(Narrowing{Allow: []string{"allowed.example", allow}})
		if err == nil {
			t.Errorf("%.80q: left %s", allow, names(got))
		} else if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 900 {
			t.Errorf("%.80q: %q, want %q", allow, err, says)
		}
	}
	if _, err := p.Narrow(Narrowing{Deny: true, Allow: []string{"allowed.example"}}); err == nil {
		t.Error("denied and allowed at once")
	}
	if _, err := p.Narrow(Narrowing{Allow: slices.Repeat([]string{"allowed.example"}, maxNarrowing+1)}); err == nil {
		t.Error("any number of entries is taken")
	}
	if _, err := (&Policy{}).Narrow(Narrowing{Allow: []string{"a.example"}}); err == nil || !strings.Contains(err.Error(), "(no network granted)") {
		t.Errorf("of nothing: %v", err)
	}
	many := &Policy{}
	for i := range 1000 {
		many.Allow = append(many.Allow, Grant{Host: fmt.Sprintf("h%d.example", i)})
	}
	if err := many.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := many.Narrow(Narrowing{Allow: []string{"a.example"}}); err == nil || len(err.Error()) > 900 || !strings.Contains(err.Error(), "and 980 more") {
		t.Errorf("of many: %v", err)
	}
}

// What is left allows exactly what the policy and one of the entries allow, by the same rule's
// say on switching protocols, and checks as a policy of its own.
func TestNarrowIsIntersection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.SampledFrom([]string{"a", "b"})
		host := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(append(rapid.SliceOfN(label, 0, 2).Draw(t, "labels"), "z", "test"), ".")
		})
		pattern := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "*."}).Draw(t, "star") + host.Draw(t, "host")
		})
		ranges := rapid.SampledFrom([]string{"10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0"})
		port := rapid.SampledFrom([]uint16{80, 443, 444})
		protocol := rapid.SampledFrom([]string{"tcp", "udp"})

		p := &Policy{}
		for range rapid.IntRange(1, 8).Draw(t, "grants") {
			g := Grant{Ports: rapid.SliceOfNDistinct(port, 1, 3, rapid.ID).Draw(t, "ports")}
			if rapid.Bool().Draw(t, "named") {
				g.Host, g.WebSocket = pattern.Draw(t, "grant"), rapid.Bool().Draw(t, "ws")
			} else {
				g.CIDR, g.Protocol = netip.MustParsePrefix(ranges.Draw(t, "range")), protocol.Draw(t, "protocol")
			}
			p.Allow = append(p.Allow, g)
			if p.Check() != nil { // granted twice
				p.Allow = p.Allow[:len(p.Allow)-1]
			}
		}
		var allow []string
		for range rapid.IntRange(1, 3).Draw(t, "entries") {
			s := pattern.Draw(t, "entry")
			if rapid.Bool().Draw(t, "range entry") {
				s = ranges.Draw(t, "range")
			}
			if rapid.Bool().Draw(t, "with port") {
				s = fmt.Sprint(s, ":", port.Draw(t, "port"))
			}
			if strings.Contains(s, "/") && rapid.Bool().Draw(t, "with protocol") {
				s += "/" + protocol.Draw(t, "protocol")
			}
			allow = append(allow, s)
		}
		left, err := p.Narrow(Narrowing{Allow: allow})
		if err != nil {
			return
		}
		if err := left.Check(); err != nil {
			t.Fatal(err)
		}
		name, number := host.Draw(t, "name"), port.Draw(t, "number")
		asked := func(of func(request) bool) bool {
			return slices.ContainsFunc(allow, func(s string) bool {
				r, err := parseRequest(s)
				return err == nil && (r.port == 0 || r.port == number) && of(r)
			})
		}
		was, is := p.Host(name, number), left.Host(name, number)
		in := asked(func(r request) bool { return (&Grant{Host: r.host}).covers(name) })
		if is.Allowed != (was.Allowed && in) {
			t.Fatalf("%v of %s left %s: %s:%d was %v, is %v", allow, names(p), names(left), name, number, was, is)
		}
		if is.Allowed && is.Grant.WebSocket != was.Grant.WebSocket {
			t.Fatalf("%v of %s left %s: %s:%d was %v, is %v", allow, names(p), names(left), name, number, was, is)
		}
		a := netip.MustParseAddr(rapid.SampledFrom([]string{"10.0.0.1", "10.1.2.3", "10.200.0.1", "203.0.113.7", "2001:db8::7", "198.51.100.7", "127.0.0.1"}).Draw(t, "address"))
		proto := protocol.Draw(t, "protocol")
		was, is = p.Address(a, number, proto), left.Address(a, number, proto)
		in = asked(func(r request) bool {
			return r.host == "" && r.cidr.Contains(a) && (r.protocol == "" || r.protocol == proto)
		})
		if is.Allowed != (was.Allowed && in) {
			t.Fatalf("%v of %s left %s: %s:%d/%s was %v, is %v", allow, names(p), names(left), a, number, proto, was, is)
		}
		// The kernel's longest match says the same.
		var longest *Range
		for _, r := range p.Prefixes() {
			if r.Protocol == proto && r.Prefix.Contains(a) && (longest == nil || r.Prefix.Bits() > longest.Prefix.Bits()) {
				longest = &r
			}
		}
		if kernel := longest != nil && slices.Contains(longest.Ports, number); kernel != was.Allowed {
			t.Fatalf("%s: %s:%d/%s: %v, by the longest prefix %v", names(p), a, number, proto, was, longest)
		}
	})
}

func FuzzNarrow(f *testing.F) {
	for _, s := range []string{"api.example.com:443", "*.files.example.com", "203.0.113.0/24:5432/tcp", "[2001:db8::7]:443", "::ffff:10.0.0.0/104"} {
		f.Add(s)
	}
	p := mustRead(f, grants)
	f.Fuzz(func(t *testing.T, s string) {
		left, err := p.Narrow(Narrowing{Allow: []string{s}})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 1500 {
				t.Errorf("%q", err)
			}
			return
		}
		// What is written by a policy is read by a caller.
		for i := range left.Allow {
			g := left.Allow[i]
			for _, port := range g.Ports {
				if _, err := p.Narrow(Narrowing{Allow: []string{g.on(port)}}); err != nil {
					t.Errorf("%q left %s, which is not inside: %v", s, g.on(port), err)
				}
			}
		}
	})
}
