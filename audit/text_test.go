package audit_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"proctor/audit"
)

func TestTextJSON(t *testing.T) {
	for _, test := range []struct{ name, bytes, want string }{
		{"plain", "/etc/passwd", `"/etc/passwd"`},
		{"empty", "", `""`},
		{"markup stays readable", "a && b <c>", `"a && b <c>"`},
		{"not UTF-8", "caf\xe9", `"caf\\xe9"`},
		{"backslash", `a\b`, `"a\\\\b"`},
		{"what looks like an escape", `\xe9`, `"\\\\xe9"`},
		{"quote", `say "x"`, `"say \"x\""`},
		{"forged record", "x\"}\n{\"run\":\"y\"", `"x\"}\u000a{\"run\":\"y\""`},
		{"terminal", "\x1b[2J\x7f", `"\u001b[2J\u007f"`},
		{"C1 control", "\u009b2J\u0085", `"\u009b2J\u0085"`},
		{"NUL", "a\x00b", `"a\u0000b"`},
		{"line separators", "a\u2028b\u2029c", `"a\u2028b\u2029c"`},
		{"right to left", "a\u202etxt.exe", `"a\u202etxt.exe"`},
		{"beyond the first plane", "\U000e0041\U0001f600", `"\udb40\udc41😀"`},
		{"U+FFFD itself", "\ufffd", `"` + "\ufffd" + `"`},
		{"surrogate in bytes", "\xed\xa0\x80", `"\\xed\\xa0\\x80"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := audit.Text(test.bytes).MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			var back audit.Text
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			if string(back) != test.bytes {
				t.Errorf("back comes %q, want %q", back, test.bytes)
			}
		})
	}
}

func TestTextJSONRefuses(t *testing.T) {
	for _, bad := range []string{`"\\"`, `"\\x"`, `"\\x4"`, `"a\\xg0"`, `"\\x+f"`, `"\\n"`, `"\\x4\\"`, `7`, `{}`, `"`} {
		var v audit.Text = "before"
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s is taken as %q", bad, v)
		} else if v != "before" {
			t.Errorf("%s: refused, yet the value became %q", bad, v)
		}
	}
}

// anyText mixes whatever bytes with what is used to mislead.
var anyText = rapid.Custom(func(t *rapid.T) audit.Text {
	parts := rapid.SliceOf(rapid.OneOf(
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.String(),
		rapid.SampledFrom([]string{`\`, `\x`, `\xff`, `\u{1}`, `\n`, "\n", "\r", "\x1b[", "\u202e", "\u2066", "\u2028", "\u0085", "\u200b", "\ufeff", "\ufffd", "\xff", "\"}\n{", "\U000e0001"}),
	)).Draw(t, "parts")
	return audit.Text(strings.Join(parts, ""))
})

func TestTextJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText.Draw(t, "text")
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(rapid.Bool().Draw(t, "html"))
		if err := enc.Encode(text); err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSuffix(buf.String(), "\n")
		if !json.Valid([]byte(line)) {
			t.Fatalf("not JSON: %q", line)
		}
		for _, r := range line {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %U", line, r)
			}
		}
		var back audit.Text
		if err := json.Unmarshal([]byte(line), &back); err != nil {
			t.Fatal(err)
		}
		if back != text {
			t.Fatalf("back comes %q of %q", back, text)
		}
	})
}

func TestPrintable(t *testing.T) {
	for _, test := range []struct{ bytes, want string }{
		{"/tmp/ä 日本", "/tmp/ä 日本"},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"\x00\x1b\x7f", `\x00\x1b\x7f`},
		{"\xff\x80", `\xff\x80`},
		{`\xff`, `\\xff`},
		{"it's", "it's"},
		{"\u202e\u200d\u2028\u0085\u00a0", `\u{202e}\u{200d}\u{2028}\u{85}\u{a0}`},
		{"\U000e0001", `\u{e0001}`},
	} {
		if got := audit.Text(test.bytes).Printable(); got != test.want {
			t.Errorf("%q: got %s, want %s", test.bytes, got, test.want)
		}
	}
}

func TestPrintableIsSafeAndUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText.Draw(t, "text")
		shown := text.Printable()
		for _, r := range shown {
			// One blank, and otherwise letters, marks, numbers, punctuation and symbols.
			if r == ' ' || unicode.IsOneOf([]*unicode.RangeTable{unicode.L, unicode.M, unicode.N, unicode.P, unicode.S}, r) {
				continue
			}
			t.Fatalf("%q is shown as %q, which holds %U", text, shown, r)
		}
		if back := unprintable(t, shown); back != string(text) {
			t.Fatalf("%q is shown as %s, which reads %q", text, shown, back)
		}
	})
}

// unprintable reads what Printable wrote, so that two texts cannot be shown alike.
func unprintable(t *rapid.T, s string) string {
	var b strings.Builder
	for len(s) > 0 {
		switch {
		case strings.HasPrefix(s, `\\`):
			b.WriteByte('\\')
			s = s[2:]
		case strings.HasPrefix(s, `\x`):
			b.WriteByte(unhex(t, s[2:4], 255)[0])
			s = s[4:]
		case strings.HasPrefix(s, `\u{`):
			digits, rest, ok := strings.Cut(s[3:], "}")
			if !ok {
				t.Fatalf("no end: %q", s)
			}
			b.WriteString(unhex(t, digits, unicode.MaxRune))
			s = rest
		case s[0] == '\\':
			i := strings.IndexByte("abfnrtv", s[1])
			if i < 0 {
				t.Fatalf("unknown escape: %q", s)
			}
			b.WriteByte("\a\b\f\n\r\t\v"[i])
			s = s[2:]
		default:
			_, n := utf8.DecodeRuneInString(s)
			b.WriteString(s[:n])
			s = s[n:]
		}
	}
	return b.String()
}

// unhex is a byte where most is 255, else a character's encoding.
func unhex(t *rapid.T, digits string, most rune) string {
	var r rune
	for _, d := range digits {
		i := strings.IndexRune("0123456789abcdef", d)
		if i < 0 || r > most {
			t.Fatalf("no number: %q", digits)
		}
		r = r<<4 | rune(i)
	}
	if most == 255 {
		return string([]byte{byte(r)})
	}
	return string(r)
}

func FuzzTextUnmarshal(f *testing.F) {
	for _, seed := range []string{`"a"`, `"\\xff"`, `"\\\\"`, `"\\x"`, `"\ud800"`, `null`, `"é\u0000"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v audit.Text
		if json.Unmarshal(data, &v) != nil {
			return
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var w audit.Text
		if err := json.Unmarshal(again, &w); err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if v != w {
			t.Fatalf("%q became %q", v, w)
		}
	})
}
