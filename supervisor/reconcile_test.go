package supervisor

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
)

// The kernel and the gateway must tell of the same connections, each by its destination; where
// some are told of together, their sums.
func TestReconciliation(t *testing.T) {
	const a, b = "198.18.1.1", "198.18.1.2"
	connect := func(address string, port uint16, rule string) audit.Event {
		return attempt(audit.KindConnect, "tcp", address, port, audit.Allowed, rule)
	}
	folded := connect(a, 443, "granted")
	folded.Repeat = &audit.Repeat{Of: 1, Count: 4}
	flow := func(address string, port uint16, count int64) audit.Event {
		return audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Protocol: "tcp", Address: netip.MustParseAddr(address), Port: port, Count: count}}
	}
	proxied := audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Protocol: "tcp", Address: netpolicy.Proxy.Addr(), Port: 443, Proxy: true}}
	finding := func(address string, kernel, gateway int64) audit.Finding {
		f := audit.Finding{What: "connections that the gateway does not know", Protocol: "tcp", Port: 443, Kernel: kernel, Gateway: gateway}
		if kernel < gateway {
			f.What = "connections that the kernel does not know"
		}
		if f.Address, _ = netip.ParseAddr(address); address == "" {
			f.Port = 0
		}
		return f
	}
	for name, tt := range map[string]struct {
		events []audit.Event
		want   []audit.Finding
	}{
		"nothing":                {},
		"one each":               {[]audit.Event{connect(a, 443, "granted"), flow(a, 443, 0)}, nil},
		"told the other way":     {[]audit.Event{flow(a, 443, 0), connect(a, 443, "granted")}, nil},
		"repeats":                {[]audit.Event{folded, flow(a, 443, 0), flow(a, 443, 0), flow(a, 443, 0), flow(a, 443, 0)}, nil},
		"one too few":            {[]audit.Event{folded, flow(a, 443, 0)}, []audit.Finding{finding(a, 4, 1)}},
		"one too many":           {[]audit.Event{connect(a, 443, "granted"), flow(a, 443, 0), flow(a, 443, 0)}, []audit.Finding{finding(a, 1, 2)}},
		"another's":              {[]audit.Event{connect(a, 443, "granted"), flow(b, 443, 0), flow(a, 443, 0)}, []audit.Finding{finding(b, 0, 1)}},
		"by the proxy":           {[]audit.Event{connect(netpolicy.Proxy.Addr().String(), netpolicy.Proxy.Port(), "Proctor's proxy"), proxied}, nil},
		"of its own":             {[]audit.Event{connect("127.0.0.1", 443, "loopback")}, nil},
		"the resolver":           {[]audit.Event{connect("192.0.2.53", 53, "Proctor's resolver")}, nil},
		"refused":                {[]audit.Event{attempt(audit.KindConnect, "tcp", a, 443, audit.Blocked, "no network granted")}, nil},
		"told of together":       {[]audit.Event{connect(a, 443, "granted"), connect(b, 443, "granted"), connect(b, 443, "granted"), flow(a, 443, 3)}, nil},
		"together, one too few":  {[]audit.Event{folded, flow(b, 443, 3)}, []audit.Finding{finding("", 4, 3)}},
		"a question on a stream": {[]audit.Event{connect("198.51.100.7", 53, "Proctor's resolver")}, nil},
	} {
		got := sumUp(tt.events...).egress.findings(nil)
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

func flowTo(address string, port uint16) audit.Event {
	return audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Protocol: "tcp", Address: netip.MustParseAddr(address), Port: port, Decision: audit.Allowed}}
}

func TestFindings(t *testing.T) {
	granted := bpf.RuleGranted.String()
	connect := attempt(audit.KindConnect, "tcp", "198.18.1.1", 443, audit.Allowed, granted)
	for name, c := range map[string]struct {
		events []audit.Event
		lost   map[audit.Kind]uint64
		want   string
	}{
		"one story":                   {[]audit.Event{connect, flowTo("198.18.1.1", 443)}, nil, ""},
		"the kernel's alone":          {[]audit.Event{connect}, nil, "connections that the gateway does not know"},
		"the gateway's alone":         {[]audit.Event{flowTo("198.18.1.1", 443)}, nil, "connections that the kernel does not know"},
		"the kernel's is lost":        {[]audit.Event{flowTo("198.18.1.1", 443)}, map[audit.Kind]uint64{audit.KindConnect: 1}, ""},
		"another is lost":             {[]audit.Event{flowTo("198.18.1.1", 443)}, map[audit.Kind]uint64{audit.KindOpen: 1}, "connections that the kernel does not know"},
		"the gateway's is not, never": {[]audit.Event{connect}, map[audit.Kind]uint64{audit.KindConnect: 1}, "connections that the gateway does not know"},
	} {
		got := ""
		for _, f := range sumUp(c.events...).egress.findings(c.lost) {
			got += f.What
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What a run asks for below localhost is no name of its own loopback address.
func TestNamesOfLoopback(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	tally := sumUp(audit.Event{Kind: audit.KindQuery, Query: &audit.Query{Name: "api.example.localhost", Decision: audit.Allowed, Answers: []netip.Addr{local}}})
	if name := tally.egress.names[local]; name != "" {
		t.Errorf("%s is %s", local, name)
	}
}
