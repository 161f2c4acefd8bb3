package credential

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// forms returns the ways of writing secret that are looked for in an answer, each once. The
// texts in whole hold the secret, too, and are known to be sent: "user:secret", "Bearer secret".
// All forms are at least as long as the secret.
func forms(secret string, whole ...string) []string {
	seen := map[string]bool{}
	var all []string
	add := func(texts ...string) {
		for _, s := range texts {
			if len(s) >= MinSecret && !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		}
	}
	add(secret)
	add(urlForms(secret)...)
	add(jsonForms(secret)...)
	add(htmlForms(secret)...)
	add(hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))))
	add(eachByte(secret, `\x%02x`), eachByte(secret, `\x%02X`))
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			add(escapedBase64(base64Core(enc, secret, shift))...)
		}
	}
	// Known texts go from end to end, so that not even the padding is left of them.
	for _, text := range append([]string{secret}, whole...) {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding, base64.StdEncoding, base64.URLEncoding} {
			add(escapedBase64(enc.EncodeToString([]byte(text)))...)
		}
	}
	return all
}

// base64Core is what base64 of any data with secret in it, at an offset of shift bytes modulo
// 3, always has in the middle: the digits whose bits are all the secret's.
func base64Core(enc *base64.Encoding, secret string, shift int) string {
	text := enc.EncodeToString(append(make([]byte, shift), secret...))
	return text[(shift*8+5)/6 : (shift+len(secret))*8/6]
}

// escapedBase64 returns text and how it looks where + / and = are escaped once more.
func escapedBase64(text string) []string {
	return []string{
		text,
		strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(text),
		strings.NewReplacer("+", "%2b", "/", "%2f", "=", "%3d").Replace(text),
		strings.ReplaceAll(text, "/", `\/`),
		strings.NewReplacer("+", `\u002b`, "=", `\u003d`).Replace(text),
		strings.NewReplacer("+", `\u002B`, "=", `\u003D`).Replace(text),
	}
}

func eachByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func eachRune(s string, write func(b *strings.Builder, r rune, raw string)) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		write(&b, r, s[i:i+size])
		i += size
	}
	return b.String()
}

// urlForms escapes as the usual libraries do. They differ in what they leave alone, in the case
// of the digits, and in what becomes of a space.
func urlForms(s string) []string {
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	var all []string
	for _, safe := range []string{
		alnum + "-_.~",                 // RFC 3986, and Go's and Python's query
		alnum + "-_.~/",                // Python's quote
		alnum + "-_.!~*'()",            // JavaScript's encodeURIComponent
		alnum + "-_.!~*'();/?:@&=+$,#", // JavaScript's encodeURI
		alnum + "-_.~$&+:=@",           // Go's path segment
		alnum + "-_.~!$&'()*+,;=:@/",   // a path
		alnum + "*-._",                 // an HTML form, Java
		"",                             // everything
	} {
		for _, format := range []string{"%%%02X", "%%%02x"} {
			for _, space := range []string{"+", "%20"} {
				var b strings.Builder
				for i := range len(s) {
					switch {
					case s[i] == ' ' && safe != "":
						b.WriteString(space)
					case strings.IndexByte(safe, s[i]) >= 0:
						b.WriteByte(s[i])
					default:
						fmt.Fprintf(&b, format, s[i])
					}
				}
				all = append(all, b.String())
			}
		}
	}
	return all
}

// jsonForms escapes as the usual writers of JSON do: all must escape quotes, backslashes and
// control characters; some escape slashes, some what HTML minds, some all that is not ASCII.
func jsonForms(s string) []string {
	var all []string
	short := map[rune]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '"': `\"`, '\\': `\\`}
	for _, format := range []string{`\u%04x`, `\u%04X`} {
		unicode := func(b *strings.Builder, r rune) {
			if r1, r2 := utf16.EncodeRune(r); r1 != utf8.RuneError {
				fmt.Fprintf(b, format+format, r1, r2)
				return
			}
			fmt.Fprintf(b, format, r)
		}
		for mode := range 16 {
			slash, html, ascii, quote := mode&1 != 0, mode&2 != 0, mode&4 != 0, mode&8 != 0
			all = append(all, eachRune(s, func(b *strings.Builder, r rune, raw string) {
				switch {
				case short[r] != "":
					b.WriteString(short[r])
				case slash && r == '/':
					b.WriteString(`\/`)
				case r < 0x20, quote && r == '\'', html && strings.ContainsRune("<>&", r), html && (r == '\u2028' || r == '\u2029'), ascii && r > 0x7e:
					unicode(b, r)
				default:
					b.WriteString(raw)
				}
			}))
		}
		// Some escape whatever is no letter or digit, some everything.
		all = append(all,
			eachRune(s, func(b *strings.Builder, r rune, raw string) {
				if r < 0x80 && (r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9') {
					b.WriteString(raw)
				} else {
					unicode(b, r)
				}
			}),
			eachRune(s, func(b *strings.Builder, r rune, _ string) { unicode(b, r) }))
	}
	return all
}

// htmlForms escapes as the usual template languages do.
func htmlForms(s string) []string {
	base := []string{"&", "&amp;", "<", "&lt;", ">", "&gt;"}
	var all []string
	for _, more := range [][]string{
		nil,
		{`"`, "&quot;"},
		{`"`, "&quot;", "'", "&#x27;"},
		{`"`, "&quot;", "'", "&#39;"},
		{`"`, "&quot;", "'", "&#039;"},
		{`"`, "&quot;", "'", "&apos;"},
		{`"`, "&#34;", "'", "&#39;"},
		{`"`, "&#34;", "'", "&#39;", "+", "&#43;"},
		{`"`, "&quot;", "'", "&#39;", "/", "&#x2F;", "`", "&#x60;", "=", "&#x3D;"},
		{`"`, "&quot;", "'", "&#x27;", "/", "&#x2F;", "`", "&#x60;", "=", "&#x3D;"},
		{`"`, "&quot;", "'", "&#x27;", "/", "&#x2f;", "`", "&#x60;", "=", "&#x3d;"},
		{`"`, "&#34;", "'", "&#39;", "/", "&#47;", "=", "&#61;"},
	} {
		all = append(all, strings.NewReplacer(append(more, base...)...).Replace(s))
	}
	for _, format := range []string{"&#%d;", "&#x%x;", "&#x%X;", "&#x%02x;", "&#x%02X;"} {
		all = append(all, eachRune(s, func(b *strings.Builder, r rune, _ string) { fmt.Fprintf(b, format, r) }))
	}
	return all
}
