package relay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

const (
	maxHead   = 64 << 10 // bytes of a request's line and fields
	maxFields = 256      // also of an answer, whose folded lines count
	maxMethod = 32       // bytes
)

var (
	errHeadLong = fmt.Errorf("the head of the request is longer than %d bytes", maxHead)
	errBareLine = errors.New("a line of the head does not end in CR LF")
)

// readHead waits for the whole head of a request, and leaves it in the reader, whose buffer
// is at least maxHead. The bytes are valid until the next read.
func readHead(br *bufio.Reader) ([]byte, error) {
	seen := 0
	for {
		b, err := br.Peek(max(br.Buffered(), 1))
		if err != nil {
			return nil, err
		}
		if i := bytes.IndexByte(b[seen:], '\n'); i >= 0 {
			// Line by line, so that a line that another program would end elsewhere is found
			// at once.
			end := seen + i + 1
			if end < 2 || b[end-2] != '\r' {
				return nil, errBareLine
			}
			if end > maxHead {
				return nil, errHeadLong
			}
			if bytes.HasSuffix(b[:end], []byte("\r\n\r\n")) || end == 2 {
				return b[:end], nil
			}
			seen = end
			continue
		}
		seen = len(b)
		if len(b) >= maxHead {
			return nil, errHeadLong
		}
		if _, err := br.Peek(len(b) + 1); err != nil {
			return nil, err
		}
	}
}

// A head is what the raw head of a request says about where it goes and where it ends.
type head struct {
	method, uri string
	minor       int // of HTTP/1
	host        string
	hosts       int
	length      string // Content-Length
	chunked     bool
	upgrade     []string // lower case
	expect      bool
}

// bad refuses what is no request. The rule may quote it.
func bad(rule string) *refusal { return refuse(400, printable(rule)) }

// checkHead reads the head of a request, its last empty line included. It refuses everything
// that two programs could read in two ways.
func checkHead(raw []byte) (*head, *refusal) {
	text := string(raw)
	if !strings.HasSuffix(text, "\r\n\r\n") {
		return nil, bad("the head of the request has no request line, or does not end in an empty line")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\r\n\r\n"), "\r\n")
	h := new(head)
	if wrong := h.requestLine(lines[0]); wrong != nil {
		return nil, wrong
	}
	if len(lines)-1 > maxFields {
		return nil, bad(fmt.Sprintf("more than %d header fields", maxFields))
	}
	for _, line := range lines[1:] {
		if wrong := h.field(line); wrong != nil {
			return nil, wrong
		}
	}
	switch {
	case h.chunked && h.length != "":
		return nil, bad("Content-Length and Transfer-Encoding together")
	case h.chunked && h.minor == 0:
		return nil, bad("Transfer-Encoding in HTTP/1.0")
	}
	return h, nil
}

func (h *head) requestLine(line string) *refusal {
	for i := range len(line) {
		if c := line[i]; c < ' ' || c > '~' {
			return bad("a byte in the request line that is not plain ASCII")
		}
	}
	words := strings.Split(line, " ")
	if len(words) != 3 || words[1] == "" {
		return bad("the request line is not METHOD TARGET HTTP/1.1")
	}
	h.method, h.uri = words[0], words[1]
	if h.method == "" || len(h.method) > maxMethod || strings.IndexFunc(h.method, notToken) >= 0 {
		return bad("the method is no token")
	}
	switch words[2] {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	case "HTTP/2.0":
		return bad("HTTP/2 without TLS is not relayed")
	default:
		return bad("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	if strings.ContainsAny(h.uri, "#\\") {
		return bad("the request's target has a # or a backslash")
	}
	return nil
}

func (h *head) field(line string) *refusal {
	if line == "" {
		return bad("an empty line in the head")
	}
	if line[0] == ' ' || line[0] == '\t' {
		return bad("a folded header field")
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return bad("a header field without a colon")
	}
	if strings.TrimRight(name, " \t") != name {
		return bad("whitespace before the colon of a header field")
	}
	if name == "" || strings.IndexFunc(name, notToken) >= 0 {
		return bad("the name of a header field is no token")
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return bad("a control character in a header field")
		}
	}
	value = strings.Trim(value, " \t")
	switch strings.ToLower(name) {
	case "host":
		if h.hosts++; h.hosts > 1 {
			return bad("more than one Host")
		}
		h.host = value
	case "content-length":
		if h.length != "" {
			return bad("more than one Content-Length")
		}
		if value == "" || len(value) > 18 || strings.Trim(value, "0123456789") != "" {
			return bad("Content-Length is no number")
		}
		h.length = value
	case "transfer-encoding":
		if h.chunked || !strings.EqualFold(value, "chunked") {
			return bad("Transfer-Encoding is not exactly chunked")
		}
		h.chunked = true
	case "upgrade":
		for _, v := range strings.Split(value, ",") {
			h.upgrade = append(h.upgrade, strings.ToLower(strings.Trim(v, " \t")))
		}
	case "expect":
		if !strings.EqualFold(value, "100-continue") {
			return bad("Expect is not exactly 100-continue")
		}
		h.expect = true
	}
	return nil
}

func notToken(r rune) bool { return r > '~' || !isToken(byte(r)) }

// isToken says whether c may stand in a method or a field's name (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
