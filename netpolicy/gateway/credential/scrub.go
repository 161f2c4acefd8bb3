package credential

import (
	"fmt"
	"strings"
)

// MinSecret is the length, in bytes, of the shortest secret that can be looked for. A shorter
// one would be found everywhere.
const MinSecret = 8

// maxSecret bounds what a secret costs: its longest form is six times as long. Those who read
// secrets have the same bound.
const maxSecret = 16 << 10

// Redacted stands in an answer where a secret was.
const Redacted = "[redacted]"

// A Scrubber takes secrets out of what an upstream answers. It is safe for use by many
// goroutines, and prints nothing of them.
type Scrubber struct {
	tables *tables
}

type tables struct {
	owners []string // names of the credentials
	text   *matcher
	names  *matcher // the same in lower case, for the names of header fields
}

// Format hides the secrets from every verb.
func (tables) Format(f fmt.State, _ rune) { fmt.Fprint(f, Redacted) }

// Format hides the secrets from every verb.
func (Scrubber) Format(f fmt.State, _ rune) { fmt.Fprint(f, "credential.Scrubber") }

// needles returns all forms of a secret. The error names the credential and not the secret.
func needles(credential string, owner int, secret string, whole ...string) ([]needle, error) {
	switch {
	case len(secret) < MinSecret:
		return nil, fmt.Errorf("credential %q: its secret has %d bytes, fewer than %d, and can't be told from ordinary text in an answer: use a longer one", credential, len(secret), MinSecret)
	case len(secret) > maxSecret:
		return nil, fmt.Errorf("credential %q: its secret has %d bytes, more than %d: is the source the right file?", credential, len(secret), maxSecret)
	}
	var list []needle
	for _, f := range forms(secret, whole...) {
		list = append(list, needle{f, owner})
	}
	return list, nil
}

// NewScrubber makes one that looks for the secrets, by name of their credential.
//
// It fails for a secret shorter than [MinSecret] bytes.
func NewScrubber(secrets map[string][]byte) (*Scrubber, error) {
	var owners []string
	var all []needle
	for name, secret := range secrets {
		list, err := needles(name, len(owners), string(secret))
		if err != nil {
			return nil, err
		}
		owners, all = append(owners, name), append(all, list...)
	}
	return newScrubber(owners, all), nil
}

func newScrubber(owners []string, all []needle) *Scrubber {
	return &Scrubber{&tables{owners: owners, text: newMatcher(all), names: lower(all)}}
}

// Hits counts what was taken out, by credential.
type Hits map[string]int64

// String returns s without secrets, and adds what it took out to hits, which may be nil.
func (s *Scrubber) String(text string, hits Hits) string {
	start, end, owner := find(s.tables.text, text, 0)
	if start < 0 {
		return text
	}
	var b strings.Builder
	pos := 0
	for start >= 0 {
		b.WriteString(text[pos:start])
		b.WriteString(Redacted)
		if hits != nil {
			hits[s.tables.owners[owner]]++
		}
		pos = end
		start, end, owner = find(s.tables.text, text, pos)
	}
	b.WriteString(text[pos:])
	return b.String()
}

// holds reports whether a header field's name holds a secret in any case: libraries change the
// case of names. It adds what it found to hits.
func (s *Scrubber) holds(name string, hits Hits) bool {
	if len(name) < s.tables.names.minBytes {
		return false
	}
	start, _, owner := find(s.tables.names, strings.ToLower(name), 0)
	if start >= 0 {
		hits[s.tables.owners[owner]]++
	}
	return start >= 0
}

// A Stream scrubs a body that comes in pieces. What comes out does not depend on where the
// pieces end, unless Release is called. It is for one goroutine at a time.
type Stream struct {
	tables   *tables
	buf      []byte // not decided yet: the beginning of a secret, maybe
	released int    // bytes of buf that have gone out already
	keep     bool   // keep the length
	hits     Hits

	watch   func(credential string, t turn) // nil: nobody minds beginnings
	began   bool                            // buf is a secret's beginning, longer than maxReleased
	ofOwner int                             // whose
}

// A turn is what becomes of a secret's beginning that is held back and longer than may be let go.
type turn int

const (
	begun  turn = iota // it is held back from now on, which shows
	whole              // it was a secret, and is taken out
	broken             // it was none, and goes out
)

// Format hides what is held back from every verb.
func (Stream) Format(f fmt.State, _ rune) { fmt.Fprint(f, "credential.Stream") }

// Stream starts on a body. With keepLength set every secret is replaced by as many bytes as it
// has, for protocols that count them.
func (s *Scrubber) Stream(keepLength bool) *Stream {
	return &Stream{tables: s.tables, keep: keepLength}
}

// Append appends to dst what can go out after chunk came in. Only what may be the beginning of
// a secret is held back.
func (s *Stream) Append(dst, chunk []byte) []byte {
	defer s.mind()
	if len(s.buf) == 0 {
		dst, rest := s.scan(dst, chunk, held)
		s.buf = append(s.buf[:0], rest...)
		return dst
	}
	s.buf = append(s.buf, chunk...)
	dst, rest := s.scan(dst, s.buf, held)
	s.buf = s.buf[:copy(s.buf, rest)]
	return dst
}

// mind tells of a beginning that is held back after a piece: who sees the rest of the piece go
// out without it knows that it is one, however soon it goes on.
func (s *Stream) mind() {
	if s.watch == nil || s.began || len(s.buf) <= maxReleased {
		return
	}
	if start, _, _ := find(s.tables.text, s.buf, 0); start == 0 {
		return // a whole secret, which may be a longer one
	}
	if start, owner := s.tables.text.open(s.buf, 0); start == 0 {
		s.began, s.ofOwner = true, owner
		s.watch(s.tables.owners[owner], begun)
	}
}

// became tells what a beginning was.
func (s *Stream) became(t turn) {
	if s.began {
		s.began = false
		s.watch(s.tables.owners[s.ofOwner], t)
	}
}

// Close appends to dst what is left at the end.
func (s *Stream) Close(dst []byte) []byte {
	dst, _ = s.scan(dst, s.buf, final)
	s.buf = s.buf[:0]
	return dst
}

// maxReleased is how much of a secret's beginning may go out so that a message that happens to
// end with the same bytes is not late.
const maxReleased = 4

// Release appends what is held back to dst if it is short, for when nothing more came in for a
// while. If it was a secret's beginning after all, the rest of it will still be taken out.
func (s *Stream) Release(dst []byte) []byte {
	defer s.mind()
	dst, rest := s.scan(dst, s.buf, decided)
	s.buf = s.buf[:copy(s.buf, rest)]
	if len(s.buf) <= maxReleased {
		dst = append(dst, s.buf[s.released:]...)
		s.released = len(s.buf)
	}
	return dst
}

// Held reports whether there is something that has not gone out.
func (s *Stream) Held() bool { return len(s.buf) > s.released }

// Hits returns what was taken out since the last call; nil where nothing was.
func (s *Stream) Hits() Hits {
	h := s.hits
	s.hits = nil
	return h
}

type waiting int

const (
	held    waiting = iota // for whatever may become a secret, or a longer form of one
	decided                // for what may become a secret where there is none yet
	final                  // for nothing
)

// scan appends to dst the scrubbed beginning of data and returns what is to wait.
func (s *Stream) scan(dst, data []byte, wait waiting) (out, rest []byte) {
	m, pos := s.tables.text, 0
	for {
		open := len(data)
		if wait != final {
			open, _ = m.open(data, pos)
		}
		start, end, owner := find(m, data, pos)
		if start < 0 || wait == held && open <= start {
			if pos == 0 && open > 0 {
				s.became(broken)
			}
			return s.emit(dst, data[pos:open]), data[open:]
		}
		if start > 0 {
			s.became(broken)
		} else {
			s.became(whole)
		}
		dst = s.emit(dst, data[pos:start])
		if s.hits == nil {
			s.hits = Hits{}
		}
		s.hits[s.tables.owners[owner]]++
		n := end - start - s.released
		s.released = 0
		if s.keep {
			dst = appendMask(dst, n)
		} else {
			dst = append(dst, Redacted...)
		}
		pos = end
	}
}

// emit appends what has not gone out yet.
func (s *Stream) emit(dst, data []byte) []byte {
	n := min(s.released, len(data))
	s.released -= n
	return append(dst, data[n:]...)
}

// appendMask appends n bytes in a secret's place.
func appendMask(dst []byte, n int) []byte {
	const stars = "****************"
	if n >= len(Redacted) {
		dst, n = append(dst, Redacted...), n-len(Redacted)
	}
	for n > 0 {
		k := min(n, len(stars))
		dst, n = append(dst, stars[:k]...), n-k
	}
	return dst
}
