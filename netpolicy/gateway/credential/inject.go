package credential

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"proctor/netpolicy/egress"
)

// A Secret is what a credential's source gave. Reveal's bytes are copied and not changed.
type Secret interface{ Reveal() []byte }

// An injector puts one credential into requests.
type injector struct {
	credential *egress.Credential
	field      string // canonical name of the header field; empty where the secret goes elsewhere
	value      string // of that field
	secret     string
}

// Format hides the secret from every verb.
func (injector) Format(f fmt.State, _ rune) { fmt.Fprint(f, Redacted) }

// newInjector fails for a secret that can't go where the credential says.
func newInjector(c *egress.Credential, secret string) (*injector, error) {
	in := &injector{credential: c, secret: secret}
	switch {
	case c.Header != "":
		format := c.Format
		if format == "" {
			format = "{secret}"
		}
		in.field = textproto.CanonicalMIMEHeaderKey(c.Header)
		in.value = strings.ReplaceAll(format, "{secret}", secret)
	case c.Basic != "":
		in.field = "Authorization"
		in.value = "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Basic+":"+secret))
	case c.Query != "", c.Placeholder != "":
	default:
		return nil, fmt.Errorf("credential %q: says nowhere where the secret goes: set header, query, basic or placeholder", c.Name)
	}
	check := in.value
	if c.Placeholder != "" {
		check = secret
	}
	if strings.ContainsFunc(check, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) || strings.TrimSpace(check) != check {
		return nil, fmt.Errorf("credential %q: its secret has a line break, a control character or a space at an end, which a header field can't hold: write it without", c.Name)
	}
	return in, nil
}

// whole returns the longer texts with the secret in them that an upstream is sent.
func (in *injector) whole() []string {
	if in.credential.Basic != "" {
		return []string{in.credential.Basic + ":" + in.secret, in.value}
	}
	if in.value != "" && in.value != in.secret {
		return []string{in.value}
	}
	return nil
}

// apply adds the secret to a request that is about to go to its host, in place of whatever the
// code sent there, and returns the new query and whether anything was added. Fields that are for
// one hop must be gone before, or the code could name this one among them.
func (in *injector) apply(h http.Header, query string) (newQuery string, added bool) {
	c := in.credential
	switch {
	case in.field != "":
		in.drop(h)
		h[in.field] = []string{in.value}
		return query, true
	case c.Query != "":
		return setParameter(query, c.Query, url.QueryEscape(in.secret)), true
	default:
		for name, values := range h {
			for i, v := range values {
				if w, ok := in.replace(v); ok {
					h[name][i], added = w, true
				}
			}
		}
		newQuery, ok := replaceEscaped(query, c.Placeholder, url.QueryEscape(in.secret))
		return newQuery, added || ok
	}
}

// drop removes every field of the credential's name, also with _ for -: many servers take one
// for the other.
func (in *injector) drop(h http.Header) {
	if in.field == "" {
		return
	}
	for name := range h {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), strings.ReplaceAll(in.field, "_", "-")) {
			delete(h, name)
		}
	}
}

// replace puts the secret in a field's value where the placeholder is, also inside basic auth,
// which is how git and others send a token.
func (in *injector) replace(v string) (string, bool) {
	p := in.credential.Placeholder
	if strings.Contains(v, p) {
		return strings.ReplaceAll(v, p, in.secret), true
	}
	if scheme, rest, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Basic") {
		plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
		if err == nil && strings.Contains(string(plain), p) {
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(plain), p, in.secret))), true
		}
	}
	return v, false
}

// setParameter returns query with every parameter of that name, however its name is escaped,
// taken out and one added at the end. The rest stays byte for byte. ";" separates, too: for some
// servers it does.
func setParameter(query, name, value string) string {
	var b strings.Builder
	for query != "" {
		end := strings.IndexAny(query, "&;")
		if end < 0 {
			end = len(query)
		}
		part := query[:end]
		key, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(key); err != nil || !strings.EqualFold(plain, name) {
			b.WriteString(part)
			if end < len(query) {
				b.WriteByte(query[end])
			}
		}
		query = query[min(end+1, len(query)):]
	}
	if s := b.String(); s != "" && !strings.HasSuffix(s, "&") {
		b.WriteByte('&')
	}
	b.WriteString(url.QueryEscape(name) + "=" + value)
	return b.String()
}

// replaceEscaped replaces text in query, where any of its bytes may be percent-encoded, by
// value, which is escaped. The rest stays byte for byte.
func replaceEscaped(query, text, value string) (string, bool) {
	var b strings.Builder
	found := false
	for i := 0; i < len(query); {
		if n := escapedPrefix(query[i:], text); n > 0 {
			b.WriteString(value)
			i += n
			found = true
			continue
		}
		b.WriteByte(query[i])
		i++
	}
	return b.String(), found
}

// escapedPrefix returns how many bytes of s spell text, and 0 if it does not begin with it.
func escapedPrefix(s, text string) int {
	i := 0
	for j := range len(text) {
		switch {
		case i >= len(s):
			return 0
		case s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0:
			if byte(unhex(s[i+1])<<4|unhex(s[i+2])) != text[j] {
				return 0
			}
			i += 3
		case s[i] == text[j], s[i] == '+' && text[j] == ' ':
			i++
		default:
			return 0
		}
	}
	return i
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
