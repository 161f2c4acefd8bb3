package egress

import (
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	long := strings.Repeat("a", 63)
	name253 := strings.Join([]string{long, long, long, strings.Repeat("b", 61)}, ".")
	for in, want := range map[string]string{
		"api.example":             "api.example",
		"API.Example.":            "api.example",
		"host":                    "host",
		"_dmarc.Example":          "_dmarc.example",
		"a_b.example":             "a_b.example",
		"r3---sn-abc.example":     "r3---sn-abc.example",
		"ab--c.example":           "ab--c.example",
		"1.example":               "1.example",
		"0x7f.example":            "0x7f.example",
		"bücher.example":          "xn--bcher-kva.example",
		"BÜCHER.example.":         "xn--bcher-kva.example",
		"xn--bcher-kva.example":   "xn--bcher-kva.example",
		"XN--BCHER-KVA.EXAMPLE":   "xn--bcher-kva.example",
		"faß.example":             "xn--fa-hia.example",
		"例え.テスト":                  "xn--r8jz45g.xn--zckzah",
		"api。example。":            "api.example", // ideographic full stop
		"ａｐｉ.example":             "api.example", // full width
		"b\u00fccher.b\u00fccher": "xn--bcher-kva.xn--bcher-kva",
		"bu\u0308cher.example":    "xn--bcher-kva.example", // decomposed
		name253:                   name253,
		name253 + ".":             name253,
	} {
		if got, err := Canonical(in); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
		if again, err := Canonical(want); err != nil || again != want {
			t.Errorf("%q again: %q, %v", want, again, err)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, says := range map[string]string{
		"":                               "is empty",
		".":                              "empty label",
		"..":                             "empty label",
		"api..example":                   "empty label",
		".example":                       "empty label",
		"api.example..":                  "empty label",
		"-a.example":                     "hyphen",
		"a-.example":                     "hyphen",
		"a b.example":                    "no host name has",
		"a\x00.example":                  "no host name has",
		"a\n.example":                    "no host name has",
		"*.example":                      "no host name has",
		"api.example:443":                "no host name has",
		"user@api.example":               "no host name has",
		"api.example/":                   "no host name has",
		"a%62.example":                   "no host name has",
		"[::1]":                          "no host name has",
		"::1":                            "no host name has",
		"127.0.0.1":                      "is an address",
		"127.0.0.1.":                     "is an address",
		"127.1":                          "is an address",
		"2130706433":                     "is an address",
		"0x7f000001":                     "is an address",
		"0x7f.1":                         "is an address",
		"0x":                             "is an address",
		"0177.0.0.1":                     "is an address",
		"api.example.7":                  "is an address",
		"１２７.0.0.1":                      "is an address",
		"127。0。0。1":                      "is an address",
		"①.②.③.④":                        "is an address",
		long + "a.example":               "more than 63",
		strings.Repeat("ab.", 84) + "cd": "longer than 253",
		strings.Repeat("ü.", 600):        "longer than 253",
		strings.Repeat("ab.", 100_000):   "longer than 253",
		"api\xff.example":                "is not UTF-8",
		"xn--bcher-KVA0.example":         "no proper IDNA",
		"xn--.example":                   "hyphen",
		"xn--a.example":                  "no proper IDNA",
		"xn--api-.example":               "hyphen",
		"xn--zca.xn--\u00fc.example":     "",
		"a\u202eb.example":               "no internationalized name",
		"\u0661\u05d0.example":           "", // breaks the bidi rule
		"a\u200db.example":               "no internationalized name",
		"\u2100.example":                 "no host name has", // maps to a/c
		"ex\ufe52\ufe52ample.example\u3002\u3002": "",
	} {
		got, err := Canonical(in)
		if err == nil {
			t.Errorf("%.60q: taken as %q", in, got)
			continue
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %q, want %q", in, err, says)
		}
		if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x00\u202e") {
			t.Errorf("%.60q: the error is raw or long: %q", in, err)
		}
	}
}

// What is taken has one form, and that form holds nothing but what names are made of.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"api.example", "BÜCHER.example.", "xn--bcher-kva.example", "a_b", "127.0.0.1", "\u3002a", "xn--a-0000", "a\u00adb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		name, err := Canonical(in)
		if err != nil {
			if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("%q: error %q", in, err)
			}
			return
		}
		if len(name) == 0 || len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("%q: taken as %q", in, name)
		}
		if again, err := Canonical(name); err != nil || again != name {
			t.Errorf("%q: %q, and again %q, %v", in, name, again, err)
		}
		if again, err := Canonical(strings.ToUpper(name) + "."); err != nil || again != name {
			t.Errorf("%q: %q, in upper case with a dot %q, %v", in, name, again, err)
		}
		if _, ok := literal(name); ok {
			t.Errorf("%q: taken as %q, an address", in, name)
		}
	})
}
