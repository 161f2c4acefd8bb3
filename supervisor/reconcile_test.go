package supervisor

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
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
		got := sumUp(tt.events...).egress.findings()
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}
