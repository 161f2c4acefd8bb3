package sign

import (
	"net/netip"
	"strings"
	"testing"

	"proctor/audit"
)

func query(name string) audit.Event {
	return audit.Event{Run: "r", Query: &audit.Query{Name: audit.Text(name), Decision: audit.Blocked}}
}

func TestSigns(t *testing.T) {
	addr := netip.MustParseAddr
	blocked := func(a string) audit.Event {
		return audit.Event{Net: &audit.Network{Protocol: "tcp", Address: addr(a), Port: 80, Decision: audit.Blocked}}
	}
	for name, test := range map[string]struct {
		event audit.Event
		kind  Kind // empty: none
		what  string
	}{
		"metadata":             {blocked("169.254.169.254"), Metadata, "169.254.169.254, tcp port 80"},
		"metadata in IPv6":     {blocked("64:ff9b::a9fe:a9fe"), Metadata, "64:ff9b::a9fe:a9fe (169.254.169.254), tcp port 80"},
		"metadata by name":     {query("metadata.goog"), Metadata, "metadata.goog, by a question for the name"},
		"metadata by proxy":    {audit.Event{Flow: &audit.Flow{Address: addr("192.0.2.54"), Proxy: true, Name: "2852039166", Decision: audit.Blocked}}, Metadata, "2852039166 (169.254.169.254), by the proxy"},
		"metadata by a name":   {audit.Event{Flow: &audit.Flow{Name: "evil.example", Upstream: netip.MustParseAddrPort("169.254.169.254:80"), Decision: audit.Blocked}}, Metadata, "169.254.169.254, which is where evil.example leads"},
		"metadata claimed":     {audit.Event{Flow: &audit.Flow{Name: "api.example", Claimed: "169.254.169.254", Decision: audit.Blocked}}, Metadata, "169.254.169.254, which the traffic says it is for"},
		"allowed":              {audit.Event{Net: &audit.Network{Address: addr("169.254.169.254"), Decision: audit.Allowed}}, "", ""},
		"scrubbed":             {audit.Event{Scrub: &audit.Scrub{Credential: "key", Name: "api.example", Where: "body"}}, Scrubbed, "key, by api.example in its body"},
		"mismatch":             {audit.Event{Flow: &audit.Flow{Name: "api.example", Claimed: "evil.example", Decision: audit.Blocked}}, Mismatch, "api.example, for which the traffic says evil.example"},
		"mismatch on the way":  {audit.Event{Flow: &audit.Flow{Name: "api.example", Claimed: "evil.example", Decision: audit.Allowed}}, Mismatch, "api.example, for which the traffic says evil.example"},
		"refused flow":         {audit.Event{Flow: &audit.Flow{Name: "api.example", Decision: audit.Blocked}}, "", ""},
		"finding":              {audit.Event{Finding: &audit.Finding{What: "more", Protocol: "tcp", Address: addr("198.18.1.1"), Port: 443, Kernel: 1, Gateway: 2}}, Finding, "more, tcp 198.18.1.1:443 (the kernel 1, the gateway 2)"},
		"finding in sum":       {audit.Event{Finding: &audit.Finding{What: "more", Protocol: "tcp", Kernel: 1, Gateway: 2}}, Finding, "more (the kernel 1, the gateway 2)"},
		"escape":               {audit.Event{Refused: &audit.Refused{Call: "unshare"}}, Escape, "unshare"},
		"a library's try":      {audit.Event{Refused: &audit.Refused{Call: "io_uring_setup"}}, "", ""},
		"complete":             {audit.Event{End: &audit.End{Status: "ok"}}, "", ""},
		"incomplete":           {audit.Event{End: &audit.End{Reason: "flood", Counts: audit.Counts{Lost: 1}}}, Blind, "flood (events lost: 1, in doubt: 0)"},
		"in doubt":             {audit.Event{End: &audit.End{Reason: "swap", Counts: audit.Counts{Raced: 1}}}, Blind, "swap (events lost: 0, in doubt: 1)"},
		"name":                 {query("a.example"), "", ""},
		"one long name":        {query(strings.Repeat("a", 63) + ".example"), "", ""},
		"opening of some file": {audit.Event{Open: &audit.Open{Path: "/x"}}, "", ""},
	} {
		got := New().Observe(&test.event)
		if test.kind != "" && !Looks(&test.event) {
			t.Errorf("%s: is not looked at", name)
		}
		if test.kind == "" && got != nil || test.kind != "" && (len(got) != 1 || got[0].Kind != test.kind || got[0].What != test.what) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
