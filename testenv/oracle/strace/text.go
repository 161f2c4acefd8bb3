package strace

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var errText = errors.New("not well-formed")

// token returns the index behind what begins at i: a string, a comment, what stands in
// angle brackets behind a descriptor, or else one byte.
func token(s string, i int) (int, error) {
	rest := s[i:]
	switch {
	case rest[0] == '"':
		for j := i + 1; j < len(s); j++ {
			switch s[j] {
			case '\\':
				j++
			case '"':
				return j + 1, nil
			}
		}
		return 0, fmt.Errorf("%w: a string without end", errText)
	case strings.HasPrefix(rest, "/*"):
		end := strings.Index(rest, "*/")
		if end < 0 {
			return 0, fmt.Errorf("%w: a comment without end", errText)
		}
		return i + end + 2, nil
	case decorates(s, i):
		for j := i + 1; j < len(s); {
			if s[j] == '>' && s[j-1] != '-' { // "->" is between the ends of a socket
				return j + 1, nil
			}
			if s[j] != '"' {
				j++
				continue
			}
			var err error
			if j, err = token(s, j); err != nil {
				return 0, err
			}
		}
		return 0, fmt.Errorf("%w: a descriptor's name without end", errText)
	}
	return i + 1, nil
}

// decorates tells the angle bracket behind a descriptor or AT_FDCWD from a shift.
func decorates(s string, i int) bool {
	if s[i] != '<' || i == 0 || strings.HasPrefix(s[i:], "<<") {
		return false
	}
	before := s[i-1]
	return before >= '0' && before <= '9' || strings.HasSuffix(s[:i], "AT_FDCWD")
}

// closing returns the index of the parenthesis that closes what was opened before s.
func closing(s string) (int, error) {
	depth := 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth == 0 {
				return i, nil
			}
			depth--
		}
		var err error
		if i, err = token(s, i); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: a bracket without its other", errText)
}

// split parts s at the commas that stand in no brackets.
func split(s string) ([]string, error) {
	var parts []string
	start, depth := 0, 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
		if depth < 0 {
			break
		}
		var err error
		if i, err = token(s, i); err != nil {
			return nil, err
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("%w: a bracket without its other", errText)
	}
	if last := strings.TrimSpace(s[start:]); last != "" {
		parts = append(parts, last)
	}
	return parts, nil
}

// List is what is between square brackets.
func List(s string) ([]string, error) { return inside(s, "[", "]") }

func inside(s, left, right string) ([]string, error) {
	s, ok := strings.CutPrefix(s, left)
	s, closed := strings.CutSuffix(s, right)
	if !ok || !closed {
		return nil, fmt.Errorf("%w: not between %s and %s", errText, left, right)
	}
	return split(s)
}

// Struct is what is between curly brackets, by the fields' names. A field that is printed as
// a call without a name, as inet_pton(…) is, has the call's.
func Struct(s string) (map[string]string, error) {
	fields, err := inside(s, "{", "}")
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		name, value, ok := strings.Cut(f, "=")
		if call, args, isCall := strings.Cut(f, "("); isCall && (!ok || len(call) < len(name)) {
			name, value = call, "("+args
		}
		m[name] = value
	}
	return m, nil
}

// Arguments are those of a field that is printed as a call: "htons(80)", or "(80)".
func Arguments(s string) ([]string, error) {
	if i := strings.IndexByte(s, '('); i >= 0 {
		s = s[i:]
	}
	return inside(s, "(", ")")
}

// Flags are the names in "A|B".
func Flags(s string) []string { return strings.Split(s, "|") }

// ErrNoString is for an argument that is printed as a pointer: NULL, or where nothing can be
// read.
var ErrNoString = errors.New("no string")

// String is the text of a string. cut says that strace kept only its beginning.
func String(s string) (text string, cut bool, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", false, fmt.Errorf("%w: %.60s", ErrNoString, s)
	}
	s, cut = strings.CutSuffix(s, "...")
	s, ok := strings.CutSuffix(s[1:], `"`)
	if !ok {
		return "", false, fmt.Errorf("%w: a string without end", errText)
	}
	text, err = unhex(s)
	return text, cut, err
}

func unhex(s string) (string, error) {
	digits := strings.ReplaceAll(s, `\x`, "")
	if len(digits) != len(s)/2 {
		return "", fmt.Errorf("%w: %.60q has more than hexadecimal bytes", errText, s)
	}
	text, err := hex.DecodeString(digits)
	return string(text), err
}

// A Descriptor is one that is printed with what it stands for.
type Descriptor struct {
	Number  int    // unix.AT_FDCWD for the working directory
	Name    string // a path, or "pipe:[1234]", "TCP:[1234]" and the like
	Deleted bool   // no directory has the name
}

const atFDCWD = -100

// ReadDescriptor reads "3<PATH>", "3<PATH>(deleted)", "4<TCP:[1234]>", "AT_FDCWD<PATH>", and
// a bare "3", whose Name is empty.
func ReadDescriptor(s string) (Descriptor, error) {
	var d Descriptor
	s, d.Deleted = strings.CutSuffix(s, "(deleted)")
	number, name, named := strings.Cut(s, "<")
	var err error
	if d.Number, err = strconv.Atoi(number); number == "AT_FDCWD" {
		d.Number, err = atFDCWD, nil
	}
	if err != nil || !named {
		return d, err
	}
	name, ok := strings.CutSuffix(name, ">")
	if !ok {
		return d, fmt.Errorf("%w: a descriptor's name without end", errText)
	}
	d.Name = name
	if strings.HasPrefix(name, `\x`) {
		d.Name, err = unhex(name)
	}
	return d, err
}
