package credential

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// awkward has a character for every way of escaping.
const awkward = `s3c/r+t=<&> "q"'\é~`

const plainSecret = "sk-proj-Zx81kQmv7Lw0TtB4nYp2"

func scrubber(t testing.TB, secrets ...string) *Scrubber {
	t.Helper()
	m := map[string][]byte{}
	for i, s := range secrets {
		m[fmt.Sprint("c", i)] = []byte(s)
	}
	s, err := NewScrubber(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func scrubAll(s *Scrubber, text string) string {
	st := s.Stream(false)
	return string(st.Close(st.Append(nil, []byte(text))))
}

func TestForms(t *testing.T) {
	for _, secret := range []string{awkward, plainSecret, "12345678"} {
		s := scrubber(t, secret)
		j, _ := json.Marshal(secret)
		jsonText := string(j[1 : len(j)-1])
		every := func(format string) (out string) {
			for _, b := range []byte(secret) {
				out += fmt.Sprintf(format, b)
			}
			return out
		}
		for name, text := range map[string]string{
			"plain":           secret,
			"query":           url.QueryEscape(secret),
			"path":            url.PathEscape(secret),
			"query, lower":    lowerEscapes(url.QueryEscape(secret)),
			"all escaped":     every("%%%02X"),
			"all escaped, l":  every("%%%02x"),
			"json":            jsonText,
			"json slash":      strings.ReplaceAll(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(jsonText), "/", `\/`),
			"html":            html.EscapeString(secret),
			"html template":   template.HTMLEscapeString(secret),
			"hex":             hex.EncodeToString([]byte(secret)),
			"HEX":             strings.ToUpper(hex.EncodeToString([]byte(secret))),
			"escaped bytes":   every(`\x%02x`),
			"base64":          base64.StdEncoding.EncodeToString([]byte(secret)),
			"base64 raw":      base64.RawStdEncoding.EncodeToString([]byte(secret)),
			"base64 url":      base64.URLEncoding.EncodeToString([]byte(secret)),
			"base64 in query": url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(secret))),
		} {
			hits := Hits{}
			if got := s.String("before "+text+" after", hits); got != "before [redacted] after" {
				t.Errorf("%s of %q: %q", name, secret, got)
			}
			if hits["c0"] != 1 {
				t.Errorf("%s of %q: hits %v", name, secret, hits)
			}
			if got := scrubAll(s, "before "+text+" after"); got != "before [redacted] after" {
				t.Errorf("%s of %q in a stream: %q", name, secret, got)
			}
		}
	}
}

func lowerEscapes(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i:], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}

func TestBase64InsideOtherData(t *testing.T) {
	s := scrubber(t, plainSecret)
	for before := range 7 {
		for after := range 4 {
			data := strings.Repeat("u", before) + plainSecret + strings.Repeat("v", after)
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
				got := s.String(enc.EncodeToString([]byte(data)), nil)
				if !strings.Contains(got, Redacted) {
					t.Fatalf("%d before, %d after: %q", before, after, got)
				}
				// All that is left of it is less than one more digit at each end.
				if left := len(got) - len(Redacted); left > (before*4/3+2)+(after*4/3+4)+2 {
					t.Errorf("%d before, %d after: %d digits left in %q", before, after, left, got)
				}
			}
		}
	}
}

func TestShortSecretIsRefused(t *testing.T) {
	_, err := NewScrubber(map[string][]byte{"tiny": []byte("hunter2")})
	if err == nil || !strings.Contains(err.Error(), `"tiny"`) || !strings.Contains(err.Error(), "8") {
		t.Errorf("error is %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "hunter2") {
		t.Error("the error holds the secret")
	}
	if _, err := NewScrubber(map[string][]byte{"huge": bytes.Repeat([]byte("x"), maxSecret+1)}); err == nil {
		t.Error("a huge secret is taken")
	}
}

// mixed draws text that is full of secrets, parts of them and their forms.
func mixed(t *rapid.T, secrets []string) string {
	var parts []string
	for _, s := range secrets {
		parts = append(parts, forms(s)...)
	}
	var b strings.Builder
	for range rapid.IntRange(0, 12).Draw(t, "parts") {
		p := rapid.SampledFrom(parts).Draw(t, "part")
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			b.WriteString(p)
		case 1:
			b.WriteString(p[:rapid.IntRange(0, len(p)).Draw(t, "end")])
		case 2:
			b.WriteString(p[rapid.IntRange(0, len(p)).Draw(t, "start"):])
		default:
			b.WriteString(rapid.StringN(0, 10, 30).Draw(t, "other"))
		}
	}
	return b.String()
}

func inPieces(t *rapid.T, st *Stream, text string) string {
	var out []byte
	for text != "" {
		n := rapid.IntRange(1, min(len(text), 40)).Draw(t, "piece")
		out = st.Append(out, []byte(text[:n]))
		text = text[n:]
	}
	return string(st.Close(out))
}

// Secrets that begin and end alike, and one inside the other, are the hard ones.
var hardSecrets = [][]string{
	{plainSecret}, {awkward}, {"aaaaaaaa", "aaaaaaaaaaab"}, {"abcabcabcabc", "cabcabcabX"}, {"12345678", "1234567812345678"},
}

func TestPiecesDoNotMatter(t *testing.T) {
	for _, secrets := range hardSecrets {
		s := scrubber(t, secrets...)
		rapid.Check(t, func(t *rapid.T) {
			text := mixed(t, secrets)
			whole := scrubAll(s, text)
			if got := inPieces(t, s.Stream(false), text); got != whole {
				t.Fatalf("in pieces: %q\nat once:   %q", got, whole)
			}
			for _, secret := range secrets {
				if strings.Contains(whole, secret) {
					t.Fatalf("%q is left in %q", secret, whole)
				}
			}
			if got := s.String(text, nil); got != whole {
				t.Fatalf("String: %q\nstream: %q", got, whole)
			}
			if got := inPieces(t, s.Stream(true), text); len(got) != len(text) {
				t.Fatalf("length %d became %d", len(text), len(got))
			}
		})
	}
}

func FuzzScrub(f *testing.F) {
	f.Add([]byte("a"+plainSecret+"b"), uint64(1))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("user:"+plainSecret))), uint64(2))
	f.Add([]byte(plainSecret[:9]+plainSecret), uint64(3))
	s := scrubber(f, plainSecret, "aaaaaaaa")
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		whole := scrubAll(s, string(text))
		r := rand.New(rand.NewPCG(seed, 1))
		st := s.Stream(false)
		var out []byte
		for rest := text; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			out, rest = st.Append(out, rest[:n]), rest[n:]
		}
		if out = st.Close(out); string(out) != whole {
			t.Fatalf("in pieces %q, at once %q", out, whole)
		}
		if strings.Contains(whole, plainSecret) || strings.Contains(whole, "aaaaaaaa") {
			t.Fatalf("left: %q", whole)
		}
	})
}

func TestOnlyABeginningIsHeld(t *testing.T) {
	st := scrubber(t, plainSecret).Stream(false)
	if out := st.Append(nil, []byte("data: hello\n\n")); string(out) != "data: hello\n\n" || st.Held() {
		t.Fatalf("an event came out as %q", out)
	}
	if out := st.Append(nil, []byte("tokens")); string(out) != "token" || !st.Held() {
		t.Fatalf("before a possible secret came %q", out)
	}
	if out := st.Append(nil, []byte(".")); string(out) != "s." {
		t.Fatalf("then %q", out)
	}
}

func TestRelease(t *testing.T) {
	for _, keep := range []bool{false, true} {
		st := scrubber(t, plainSecret).Stream(keep)
		out := string(st.Append(nil, []byte("ends in sk-")))
		out += string(st.Release(nil))
		if out != "ends in sk-" || st.Held() {
			t.Fatalf("released %q", out)
		}
		// It was one after all: the rest of it is taken out.
		out += string(st.Append(nil, []byte(plainSecret[3:10])))
		if out += string(st.Release(nil)); out != "ends in sk-" || !st.Held() {
			t.Fatalf("ten bytes of a secret: %q", out)
		}
		out += string(st.Append(nil, []byte(plainSecret[10:]+" and on")))
		want := "ends in sk-[redacted] and on"
		if keep {
			want = "ends in sk-[redacted]" + strings.Repeat("*", len(plainSecret)-3-len(Redacted)) + " and on"
		}
		if out != want {
			t.Fatalf("then %q, not %q", out, want)
		}
		// It was none.
		out = string(st.Append(nil, []byte("sk")))
		out += string(st.Release(nil))
		out += string(st.Append(nil, []byte("y, s")))
		if out += string(st.Close(nil)); out != "sky, s" {
			t.Fatalf("released and went on: %q", out)
		}
	}
}

func TestReleaseNeverGivesMoreThanABeginning(t *testing.T) {
	s := scrubber(t, plainSecret)
	rapid.Check(t, func(t *rapid.T) {
		st := s.Stream(false)
		var out []byte
		for text := "x" + plainSecret + "y"; text != ""; {
			n := rapid.IntRange(1, len(text)).Draw(t, "piece")
			out = st.Append(out, []byte(text[:n]))
			if text = text[n:]; rapid.Bool().Draw(t, "late") {
				out = st.Release(out)
			}
		}
		out = st.Close(out)
		if strings.Contains(string(out), plainSecret[:maxReleased+1]) || !strings.Contains(string(out), Redacted) {
			t.Fatalf("%q", out)
		}
	})
}

func BenchmarkScrub(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	text := bytes.Repeat([]byte(`{"id":"chatcmpl-9x","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"content":" the quick brown fox"}}]}`+"\n"), 7000)
	data := map[string][]byte{
		"text": text, "random": random,
		"base64": []byte(base64.StdEncoding.EncodeToString(random)), "hex": []byte(hex.EncodeToString(random)),
	}
	for _, secrets := range [][]string{{plainSecret}, {"Pa55word"}, {plainSecret, "ghp_A8d0aVbb71kkQ8s7w9dhTqP0xYz", "xoxb-1234-5678-abcdEFGH"}} {
		s := scrubber(b, secrets...)
		for _, name := range []string{"text", "random", "base64", "hex"} {
			b.Run(fmt.Sprintf("%s/secrets=%d,shortest=%d", name, len(secrets), s.tables.text.minBytes), func(b *testing.B) {
				d := data[name]
				out := make([]byte, 0, 40<<10)
				b.SetBytes(int64(len(d)))
				for b.Loop() {
					st := s.Stream(false)
					for i := 0; i < len(d); i += pieceBytes {
						out = st.Append(out[:0], d[i:min(i+pieceBytes, len(d))])
					}
					st.Close(out[:0])
				}
			})
		}
	}
}
