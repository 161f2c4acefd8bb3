package sink

import (
	"testing"

	"proctor/netpolicy/secret"
)

func TestRedact(t *testing.T) {
	secrets := []secret.Secret{secret.New([]byte("https://hooks.example/s/T0/b/Qw+9?k=a%2Fb&l=c")), secret.New([]byte(`ke"y-0123456789`)), {}}
	for _, test := range []struct{ text, want string }{
		{"nothing of it", "nothing of it"},
		{"", ""},
		{"/s/T0/b/Qw+9", "[redacted]"},
		{"POST https://hooks.example/s/T0/b/Qw+9: no", "POST https://hooks.example[redacted]: no"},
		{"POST /S/t0/B/qW+9: no", "POST [redacted]: no"},
		{"POST %2Fs%2FT0%2Fb%2FQw%2B9: no", "POST [redacted]: no"},
		{"POST %2fs%2ft0%2fb%2fqw%2b9: no", "POST [redacted]: no"},
		{"k=a%2Fb&l=c and k=a/b&l=c", "[redacted] and [redacted]"},
		{`ke"y-0123456789`, "[redacted]"},
		{`"ke\"y-0123456789"`, `"[redacted]"`},
		{"key y-012345 y-01234 0123456789ke", "key [redacted] y-01234 [redacted]ke"}, // seven bytes are nobody's
		{"y-012345y-012345", "[redacted]"},
	} {
		if got := redact(test.text, secrets); got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
	if got := redact("/s/T0/b/Qw+9", nil); got != "/s/T0/b/Qw+9" {
		t.Errorf("of no secrets: %q", got)
	}
}
