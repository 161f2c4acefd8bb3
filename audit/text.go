package audit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is a string that came from the code in the box: a path, an argument, a
// process name. The kernel does not promise UTF-8, and the code may choose the bytes
// to mislead whoever reads them.
//
// In JSON it is one string from which the bytes can be had back exactly: a byte that
// is not part of valid UTF-8 stands as \xNN, a backslash as \\. (These are characters of
// the string's value, before JSON's own escaping.)
type Text string

// MarshalJSON encodes t as described at [Text]. Whatever is not a plain printable character
// is escaped in JSON's way on top, so that the line is one line, and harmless, for whatever
// reads or shows it.
func (t Text) MarshalJSON() ([]byte, error) {
	return appendText(make([]byte, 0, len(t)+2), t), nil
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (t *Text) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	raw, err := unescape(s)
	if err != nil {
		return err
	}
	*t = Text(raw)
	return nil
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		switch {
		case strings.HasPrefix(s[i:], `\\`):
			b.WriteByte('\\')
			i++
		case strings.HasPrefix(s[i:], `\x`) && len(s) >= i+4:
			v, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
			if err != nil {
				return "", fmt.Errorf("text %q: bad escape at byte %d", s, i)
			}
			b.WriteByte(byte(v))
			i += 3
		default:
			return "", fmt.Errorf("text %q: bad escape at byte %d", s, i)
		}
	}
	return b.String(), nil
}

// Printable returns t for a terminal or a log line: whatever is not a plain printable
// character (control, bidirectional and other format characters, line separators,
// bytes that are not UTF-8) is escaped, so that nothing the code chose can move the
// cursor, forge a line or reorder one.
func (t Text) Printable() string {
	var b strings.Builder
	for s := string(t); len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\\':
			b.WriteString(`\\`)
		case unicode.IsPrint(r):
			b.WriteString(s[:n])
		case r < 0x80:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		s = s[n:]
	}
	return b.String()
}
