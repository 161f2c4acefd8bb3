package credential

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"proctor/netpolicy/egress"
)

func TestPlacements(t *testing.T) {
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	odd := "odd&secret=%+ 1"
	for _, x := range []struct {
		name       string
		c          egress.Credential
		secret     string
		header     http.Header
		query      string
		wantHeader http.Header
		wantQuery  string
		added      bool
	}{
		{"header without a format", egress.Credential{Header: "x-api-key"}, plainSecret,
			http.Header{"X-Api-Key": {"a", "b"}, "X_api_key": {"c"}, "x-API-KEY": {"d"}, "X-Other": {"e"}}, "q",
			http.Header{"X-Api-Key": {plainSecret}, "X-Other": {"e"}}, "q", true},
		{"format", egress.Credential{Header: "Authorization", Format: "token {secret}; {secret}"}, plainSecret, http.Header{}, "",
			http.Header{"Authorization": {"token " + plainSecret + "; " + plainSecret}}, "", true},
		{"basic", egress.Credential{Basic: "git"}, plainSecret, http.Header{"Authorization": {"Basic own"}}, "",
			http.Header{"Authorization": {basic("git:" + plainSecret)}}, "", true},
		{"query, alone", egress.Credential{Query: "key"}, plainSecret, http.Header{}, "", http.Header{}, "key=" + plainSecret, true},
		{"query, among others", egress.Credential{Query: "key"}, odd, http.Header{}, "a=%41&key=own&b=+&k%65y=own2&KEY=own3&c;key=own4&key&d",
			http.Header{}, "a=%41&b=+&c;d&key=" + url.QueryEscape(odd), true},
		{"query, alike", egress.Credential{Query: "key"}, plainSecret, http.Header{}, "keys=1&mykey=2&%zz=3", http.Header{}, "keys=1&mykey=2&%zz=3&key=" + plainSecret, true},
		{"placeholder", egress.Credential{Placeholder: "PLACE/HOLD"}, odd,
			http.Header{"A": {"x PLACE/HOLD y", "other"}, "Authorization": {basic("me:PLACE/HOLD")}}, "a=PLACE%2FHOLD&b=%50LACE/HOLD&c=PLACE",
			http.Header{"A": {"x " + odd + " y", "other"}, "Authorization": {basic("me:" + odd)}},
			"a=" + url.QueryEscape(odd) + "&b=" + url.QueryEscape(odd) + "&c=PLACE", true},
		{"no placeholder", egress.Credential{Placeholder: "PLACEHOLDER"}, plainSecret, http.Header{"A": {"place"}, "Authorization": {"Basic !!"}}, "%5", http.Header{"A": {"place"}, "Authorization": {"Basic !!"}}, "%5", false},
	} {
		in, err := newInjector(&x.c, x.secret)
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		query, added := in.apply(x.header, x.query)
		if query != x.wantQuery || added != x.added {
			t.Errorf("%s: query %q, not %q; added %v", x.name, query, x.wantQuery, added)
		}
		if fmt.Sprint(x.header) != fmt.Sprint(x.wantHeader) {
			t.Errorf("%s: header %v, not %v", x.name, x.header, x.wantHeader)
		}
	}
}

func TestSecretsThatDoNotFit(t *testing.T) {
	for _, c := range []egress.Credential{{Name: "n", Header: "A"}, {Name: "n", Placeholder: "PLACEHOLDER"}} {
		for _, s := range []string{plainSecret + "\n", plainSecret + "\r\nX: y", "\x00" + plainSecret, " " + plainSecret} {
			if _, err := newInjector(&c, s); err == nil || !strings.Contains(err.Error(), `"n"`) || strings.Contains(err.Error(), plainSecret) {
				t.Errorf("%+v: error %v", c, err)
			}
		}
	}
	if _, err := newInjector(&egress.Credential{Name: "n"}, plainSecret); err == nil {
		t.Error("a credential that goes nowhere is taken")
	}
}

func FuzzSetParameter(f *testing.F) {
	f.Add("a=1&key=2&k%65y=3", "v")
	f.Add("&&;;key;", "v")
	f.Fuzz(func(t *testing.T, query, value string) {
		got := setParameter(query, "key", url.QueryEscape(value))
		n := 0
		for part := range strings.FieldsFuncSeq(got, func(r rune) bool { return r == '&' || r == ';' }) {
			name, v, _ := strings.Cut(part, "=")
			if plain, err := url.QueryUnescape(name); err == nil && strings.EqualFold(plain, "key") {
				if n++; v != url.QueryEscape(value) {
					t.Fatalf("%q is left in %q", part, got)
				}
			}
		}
		if n != 1 {
			t.Fatalf("%d times in %q", n, got)
		}
	})
}

func FuzzAmbiguous(f *testing.F) {
	for _, s := range []string{"/v1/models", "/v1/models/../x", "/v1/models/%2e%2e/x", "/v1/models%2f..", "/v1//x", "/v1/models/..;a/x", "/%252e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || ambiguous(u.EscapedPath(), u.Path) != "" {
			return
		}
		// However often it is unescaped and cleaned, it stays what was matched.
		again, err := url.PathUnescape(u.Path)
		if err == nil && again != u.Path {
			t.Fatalf("%q unescapes twice, to %q", raw, again)
		}
		for s := range strings.SplitSeq(u.Path, "/") {
			if slices.Contains([]string{".", ".."}, strings.SplitN(s, ";", 2)[0]) {
				t.Fatalf("%q has a dot segment", raw)
			}
		}
	})
}
