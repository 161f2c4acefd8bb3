package names

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"proctor/audit"
)

// question is a packed question, changed by the functions.
func question(t testing.TB, name string, qtype uint16, change ...func(*dns.Msg)) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	m.Id = 0x1234
	for _, f := range change {
		f(m)
	}
	out, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func edns(size, version uint16) func(*dns.Msg) {
	return func(m *dns.Msg) {
		m.SetEdns0(size, true)
		m.IsEdns0().SetVersion(uint8(version))
	}
}

var somewhere = source{protocol: "udp", server: netip.MustParseAddrPort("192.0.2.53:53"), client: netip.MustParseAddrPort("192.0.2.9:4444")}

// local makes a resolver whose names exist without anybody being asked, if they are in the cache.
func unserved(t testing.TB, p Policy, o Options) (*Resolver, *tape) {
	t.Helper()
	rec := &tape{}
	o.Policy, o.Recorder, o.Table = p, rec, NewTable(3)
	o.Upstream = newUpstream(t, UpstreamOptions{})
	r, err := NewResolver(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api.example", "a.files.example", "b.files.example"} {
		for _, family := range []Family{IPv4, IPv6} {
			r.opts.Upstream.cache.put(key{name, family}, Answer{Status: Found, Addresses: addrs("192.0.2.1"), TTL: time.Hour}, nil)
		}
	}
	return r, rec
}

// put has a packet answered as if it came by UDP.
func put(t testing.TB, r *Resolver, packet []byte) *dns.Msg {
	t.Helper()
	q := r.receive(packet)
	rep, done := r.judge(q)
	if !done {
		rep = r.lookup(t.Context(), q, rep)
	}
	r.note(q, &rep, somewhere)
	if rep.mute {
		return nil
	}
	out, err := q.pack(&rep, q.size(), nil)
	if err != nil {
		t.Fatalf("answer to %x: %v", packet, err)
	}
	if len(out) > q.size() {
		t.Fatalf("answer to %x: %d bytes, more than %d", packet, len(out), q.size())
	}
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		t.Fatalf("answer to %x can't be parsed: %v", packet, err)
	}
	return m
}

func TestMessages(t *testing.T) {
	compressed := append(question(t, "x.", dns.TypeA)[:12], 0xc0, 12, 0, 1, 0, 1) // a name that is itself
	for _, c := range []struct {
		what   string
		packet []byte
		code   string // of the record; empty: no answer
		name   string
		rule   string // a part of it
	}{
		{"nothing", nil, "", "", "shorter than its header"},
		{"a header short of a byte", make([]byte, 11), "", "", "shorter"},
		{"a header alone", make([]byte, 12), "FORMERR", "", "one question, not 0"},
		{"an answer", question(t, "api.example.", dns.TypeA, func(m *dns.Msg) { m.Response = true }), "", "", "it is an answer"},
		{"two questions", question(t, "api.example.", dns.TypeA, func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), "FORMERR", "", "not 2"},
		{"a cut question", question(t, "api.example.", dns.TypeA)[:20], "FORMERR", "", "can't be parsed"},
		{"a count that lies", append(question(t, "api.example.", dns.TypeA)[:11], 1), "FORMERR", "", "can't be parsed"},
		{"a loop", compressed, "FORMERR", "", "can't be parsed"},
		{"an answer section", question(t, "api.example.", dns.TypeA, func(m *dns.Msg) {
			rr, _ := dns.NewRR("api.example. 1 IN A 192.0.2.1")
			m.Answer = []dns.RR{rr}
		}), "FORMERR", "", "so many records"},
		{"status", question(t, "api.example.", dns.TypeA, func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }), "NOTIMP", "", "opcode 2"},
		{"notify", question(t, "api.example.", dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), "NOTIMP", "", "opcode 4"},
		{"update", question(t, "api.example.", dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), "NOTIMP", "", "opcode 5"},
		{"chaos", question(t, "version.bind.", dns.TypeTXT, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), "REFUSED", "version.bind", "no class but IN"},
		{"any class", question(t, "api.example.", dns.TypeA, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), "REFUSED", "api.example", "class"},
		{"EDNS 1", question(t, "api.example.", dns.TypeA, edns(1232, 1)), "BADVERS", "api.example", "no version but 0"},
		{"two EDNS", question(t, "api.example.", dns.TypeA, edns(1232, 0), func(m *dns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }), "FORMERR", "api.example", "one EDNS"},
		{"three extras", question(t, "api.example.", dns.TypeA, edns(1232, 0), func(m *dns.Msg) { m.Extra = append(m.Extra, m.Extra[0], m.Extra[0]) }), "FORMERR", "", "so many"},
		{"AXFR", question(t, "api.example.", dns.TypeAXFR), "REFUSED", "api.example", "zones"},
		{"IXFR", question(t, "api.example.", dns.TypeIXFR), "REFUSED", "api.example", "zones"},
		{"TKEY", question(t, "api.example.", dns.TypeTKEY), "NOTIMP", "api.example", "no data"},
		{"OPT", question(t, "api.example.", dns.TypeOPT), "FORMERR", "api.example", "can't be asked"},
		{"type 0", question(t, "api.example.", 0), "FORMERR", "api.example", "can't be asked"},
		{"ANY", question(t, "api.example.", dns.TypeANY), "NOERROR", "api.example", "host api.example"},
		{"ANY of what is not granted", question(t, "evil.example.", dns.TypeANY), "NXDOMAIN", "evil.example", "evil.example is not granted"},
		{"the root", question(t, ".", dns.TypeNS), "NOERROR", "", "root"},
		{"a dot in a label", question(t, `api\.example.`, dns.TypeA), "NXDOMAIN", `api\.example`, "not a host name"},
		{"a dot in a granted label", question(t, `evil\.api.files.example.`, dns.TypeA), "NXDOMAIN", `evil\.api.files.example`, "not a host name"},
		{"a name in a label", question(t, `api\.example\.com.example.`, dns.TypeA), "NXDOMAIN", `api\.example\.com.example`, "not a host name"},
		{"a dot at a label's end", question(t, `api\..example.`, dns.TypeA), "NXDOMAIN", `api\..example`, "not a host name"},
		{"a label of a dot", question(t, `\..`, dns.TypeA), "NXDOMAIN", `\.`, "not a host name"},
		{"a backslash at a label's end", question(t, `api\\.example.`, dns.TypeA), "NXDOMAIN", `api\\.example`, "not a host name"},
		{"bytes", question(t, `b\252\000\\\"c.files.example.`, dns.TypeA), "NXDOMAIN", "b\xfc\x00\\\\\"c.files.example", "not a host name"},
		{"a star", question(t, "*.files.example.", dns.TypeA), "NXDOMAIN", "*.files.example", "not a host name"},
		{"the longest", question(t, strings.Repeat(strings.Repeat("a", 61)+".", 4)+"ab.cd.", dns.TypeA, edns(512, 0)), "NXDOMAIN",
			strings.Repeat(strings.Repeat("a", 61)+".", 4) + "ab.cd", "not granted"},
		{"the longest in bytes", question(t, strings.Repeat(strings.Repeat(`\255`, 61)+".", 4)+"ab.cd.", dns.TypeTXT, edns(512, 0)), "NXDOMAIN",
			strings.Repeat(strings.Repeat("\xff", 61)+".", 4) + "ab.cd", "not a host name"},
		{"DDR", question(t, "_dns.resolver.arpa.", dns.TypeSVCB), "NXDOMAIN", "_dns.resolver.arpa", "not granted"},
		{"the canary of DoH", question(t, "use-application-dns.net.", dns.TypeA), "NXDOMAIN", "use-application-dns.net", "not granted"},
		{"a trailing byte", append(question(t, "api.example.", dns.TypeA), 0), "NOERROR", "api.example", "host api.example"},
		{"a cookie", question(t, "api.example.", dns.TypeA, edns(1232, 0), func(m *dns.Msg) {
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1223344556"}}
		}), "NOERROR", "api.example", "host api.example"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r, rec := unserved(t, grants{hosts: []string{"api.example", "*.files.example"}}, Options{})
			m := put(t, r, c.packet)
			records := rec.all()
			if len(records) != 1 {
				t.Fatalf("%d records", len(records))
			}
			got := records[0]
			if got.Code != c.code || got.Name != audit.Text(c.name) || !strings.Contains(got.Rule, c.rule) {
				t.Errorf("record %+v", got)
			}
			if strings.Contains(got.Rule, `\`) {
				t.Errorf("a rule with escapes, which is escaped again where it is shown: %s", got.Rule)
			}
			if got.Server != somewhere.server || got.Client != 4444 || got.Protocol != "udp" {
				t.Errorf("record %+v", got)
			}
			if (m == nil) != (c.code == "") {
				t.Fatalf("answer %v", m)
			}
			if m == nil {
				return
			}
			if codeName(m.Rcode) != c.code || !m.Response || !m.RecursionAvailable || m.Authoritative || m.Truncated {
				t.Errorf("answer %v", m)
			}
			if id := uint16(c.packet[0])<<8 | uint16(c.packet[1]); m.Id != id {
				t.Errorf("id %x, want %x", m.Id, id)
			}
		})
	}
}

// The packet's options decide the shape of a refusal.
func TestRefusal(t *testing.T) {
	r, _ := unserved(t, grants{}, Options{})
	m := put(t, r, question(t, "eVil.example.", dns.TypeAAAA, edns(4096, 0)))
	if m.Rcode != dns.RcodeNameError || len(m.Answer) != 0 || m.Question[0].Name != "eVil.example." || !m.RecursionDesired {
		t.Errorf("answer %v", m)
	}
	soa, ok := m.Ns[0].(*dns.SOA)
	if !ok || soa.Minttl != 60 || soa.Hdr.Ttl != 60 || !dns.IsSubDomain(soa.Hdr.Name, "evil.example.") {
		t.Errorf("authority %v", m.Ns)
	}
	opt := m.IsEdns0()
	if opt == nil || opt.UDPSize() != udpSize || !opt.Do() || opt.Version() != 0 {
		t.Fatalf("EDNS %v", opt)
	}
	if e, ok := opt.Option[0].(*dns.EDNS0_EDE); !ok || e.InfoCode != 15 || e.ExtraText != "evil.example is not granted" {
		t.Errorf("extended error %v", opt.Option)
	}
	if m := put(t, r, question(t, "evil.example.", dns.TypeA)); m.IsEdns0() != nil || len(m.Extra) != 0 {
		t.Errorf("without EDNS: %v", m)
	}
}

func FuzzMessage(f *testing.F) {
	for _, name := range []string{".", "api.example.", `a\.b\000.files.example.`, "localhost.", "1.1.18.198.in-addr.arpa.", strings.Repeat("a.", 120)} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypePTR, dns.TypeANY, dns.TypeAXFR} {
			f.Add(question(f, name, qtype))
			f.Add(question(f, name, qtype, edns(1232, 0)))
		}
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		r, rec := unserved(t, grants{hosts: []string{"api.example", "*.files.example"}}, Options{})
		m := put(t, r, packet)
		records := rec.all()
		if len(records) != 1 {
			t.Fatalf("%d records", len(records))
		}
		got := records[0]
		if len(got.Name) > 255 || len(got.Rule) > 1200 {
			t.Errorf("record %+v", got)
		}
		if m == nil {
			if got.Decision != audit.Blocked || got.Code != "" {
				t.Errorf("no answer, record %+v", got)
			}
			return
		}
		if !m.Response || len(packet) < 12 || packet[2]&0x80 != 0 {
			t.Errorf("answer %v", m)
		}
		if codeName(m.Rcode) != got.Code {
			t.Errorf("answer %v, record %+v", m, got)
		}
		if got.Decision == audit.Blocked && len(m.Answer) > 0 {
			t.Errorf("blocked, with an answer: %v", m)
		}
		for _, name := range r.opts.Table.names {
			if name != "api.example" && !strings.HasSuffix(name, ".files.example") || !hostName(name) {
				t.Errorf("%q was given an address", name)
			}
		}
	})
}

func TestReverse(t *testing.T) {
	for _, s := range []string{"198.18.1.1", "0.0.0.0", "255.255.255.255", "fd70:726f:6374:6f72::c612:101", "::", "::1", "2001:db8:1234:5678:9abc:def0:fedc:ba98"} {
		name, err := dns.ReverseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := reverse(strings.TrimSuffix(name, ".")); !ok || a != netip.MustParseAddr(s) {
			t.Errorf("%s: %s, %v", name, a, ok)
		}
	}
	for _, s := range []string{
		"in-addr.arpa", "1.in-addr.arpa", "1.2.3.in-addr.arpa", "1.2.3.4.5.in-addr.arpa", "256.1.1.1.in-addr.arpa", "a.1.1.1.in-addr.arpa", "01.1.1.1.in-addr.arpa",
		"ip6.arpa", "1.ip6.arpa", strings.Repeat("0.", 31) + ".ip6.arpa", strings.Repeat("0.", 31) + "g.ip6.arpa", strings.Repeat("00", 31) + "0.ip6.arpa",
	} {
		if a, ok := reverse(s); ok {
			t.Errorf("%s is %s", s, a)
		}
	}
}
