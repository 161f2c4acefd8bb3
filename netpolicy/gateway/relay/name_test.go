package relay

import (
	"net/netip"
	"strings"
	"testing"
)

func TestTarget(t *testing.T) {
	for s, want := range map[string]string{
		"one.test":               "one.test:80",
		"ONE.Test.:443":          "one.test:443",
		"a_b.xn--bcher-kva.test": "a_b.xn--bcher-kva.test:80",
		"192.0.2.1:1":            "192.0.2.1:1",
		"[2001:db8::1]":          "[2001:db8::1]:80",
		"[2001:DB8:0::1]:443":    "[2001:db8::1]:443",
		"[::ffff:192.0.2.1]:443": "192.0.2.1:443",
		"1.test":                 "1.test:80",
		"0xg.0xtest":             "0xg.0xtest:80",
	} {
		if got, _, ok := parseTarget(s, 80); !ok || got.String() != want {
			t.Errorf("%q is %s, %t; should be %s", s, got, ok, want)
		}
	}
	for _, s := range []string{
		"", ".", "..", "a..b", "a b", "a/b", "a@b", "a:", "a:0", "a:x", "a:65536", "a:080", "a:1:2", "2130706433", "0x7f.1", "a.1", "a.0x", "1.2.3",
		"01.2.3.4", "[::1", "[::1]x", "[::1]:", "[192.0.2.1]", "[a]", "[fe80::1%eth0]", "::1", "ä.test", "a\x00.test", "a%2e.test",
		strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 127) + "test",
	} {
		if got, _, ok := parseTarget(s, 80); ok {
			t.Errorf("%q is taken for %s", s, got)
		}
	}
	if _, _, ok := parseTarget("one.test", 0); ok {
		t.Error("no port is taken for one")
	}
}

// What is taken has one spelling, and a name is never one that could be an address.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"one.test:443", "[::1]:1", "127.1", "0x7f.0.0.1:80", "ONE.TEST.", "[::ffff:1.2.3.4]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, _, ok := parseTarget(s, 80)
		if !ok {
			return
		}
		again, ported, ok := parseTarget(got.String(), 1)
		if !ok || !ported || again != got {
			t.Fatalf("%q is %s, and that is %s, %t", s, got, again, ok)
		}
		if (got.name == "") == !got.addr.IsValid() {
			t.Fatalf("%q is %+v", s, got)
		}
		if _, err := netip.ParseAddr(got.name); err == nil || got.addr.Is4In6() || got.addr.Zone() != "" {
			t.Fatalf("%q is %+v", s, got)
		}
	})
}
