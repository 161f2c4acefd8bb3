package credential

import (
	"fmt"
	"strings"
)

// A matcher finds any of many texts, the leftmost and there the longest. It looks at the end of
// a window of the shortest text's length and mostly skips most of a window (Wu and Manber), so
// that data without a hit costs a few tenths of a nanosecond a byte.
type matcher struct {
	window   int // bytes of each text that the tables are made of
	longest  int
	shift    *[1 << 16]uint8     // by the window's last two bytes: how far it can go on
	ends     map[uint16][]needle // texts whose window ends in these bytes, the longest first
	starts   [256][]needle       // by first byte
	minBytes int
}

// Format hides the secrets from every verb.
func (matcher) Format(f fmt.State, _ rune) { fmt.Fprint(f, Redacted) }

// A needle is a text to find and whose secret it is.
type needle struct {
	text  string
	owner int
}

// Format hides the secrets from every verb.
func (needle) Format(f fmt.State, _ rune) { fmt.Fprint(f, Redacted) }

// maxWindow keeps a shift in one byte.
const maxWindow = 64

// newMatcher makes a matcher of texts of at least two bytes. Without any it finds nothing.
func newMatcher(needles []needle) *matcher {
	m := &matcher{ends: map[uint16][]needle{}, shift: new([1 << 16]uint8)}
	for _, n := range needles {
		if m.minBytes == 0 || len(n.text) < m.minBytes {
			m.minBytes = len(n.text)
		}
		m.longest = max(m.longest, len(n.text))
	}
	m.window = min(m.minBytes, maxWindow)
	if m.window == 0 {
		return m
	}
	for i := range m.shift {
		m.shift[i] = uint8(m.window - 1)
	}
	for _, n := range needles {
		for j := 1; j < m.window; j++ {
			pair := uint16(n.text[j-1])<<8 | uint16(n.text[j])
			m.shift[pair] = min(m.shift[pair], uint8(m.window-1-j))
		}
		pair := uint16(n.text[m.window-2])<<8 | uint16(n.text[m.window-1])
		m.ends[pair] = insert(m.ends[pair], n)
		m.starts[n.text[0]] = append(m.starts[n.text[0]], n)
	}
	return m
}

// insert keeps the longest first.
func insert(list []needle, n needle) []needle {
	i := 0
	for i < len(list) && len(list[i].text) >= len(n.text) {
		i++
	}
	list = append(list, needle{})
	copy(list[i+1:], list[i:])
	list[i] = n
	return list
}

// find returns where the first text at or after from starts, where it ends, and whose it is;
// start is -1 where there is none.
func find[T string | []byte](m *matcher, data T, from int) (start, end, owner int) {
	if m.window == 0 {
		return -1, -1, -1
	}
	for i := from + m.window - 1; i < len(data); {
		pair := uint16(data[i-1])<<8 | uint16(data[i])
		if s := m.shift[pair]; s != 0 {
			i += int(s)
			continue
		}
		start := i - m.window + 1
		for _, n := range m.ends[pair] {
			if len(data)-start >= len(n.text) && string(data[start:start+len(n.text)]) == n.text {
				return start, start + len(n.text), n.owner
			}
		}
		i++
	}
	return -1, -1, -1
}

// open returns the first place at or after from whose rest of data is the beginning of a text
// that data is too short for, and whose text that is; len(data) and -1 where there is none.
func (m *matcher) open(data []byte, from int) (start, owner int) {
	for p := max(from, len(data)-m.longest+1); p < len(data); p++ {
		for _, n := range m.starts[data[p]] {
			if rest := data[p:]; len(rest) < len(n.text) && string(rest) == n.text[:len(rest)] {
				return p, n.owner
			}
		}
	}
	return len(data), -1
}

// lower returns the same matcher for texts that lost their case.
func lower(needles []needle) *matcher {
	low := make([]needle, len(needles))
	for i, n := range needles {
		low[i] = needle{strings.ToLower(n.text), n.owner}
	}
	return newMatcher(low)
}
