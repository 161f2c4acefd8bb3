package relay

import (
	"errors"
	"fmt"
)

const (
	recordHeader    = 5
	recordHandshake = 22
	maxRecord       = 1 << 14 // bytes in a record that is not encrypted
	maxHello        = 64 << 10

	extensionServerName = 0
)

var (
	errNotTLS   = errors.New("not TLS")
	errNoName   = errors.New("the ClientHello names no server")
	errManyName = errors.New("the ClientHello names more than one server")
)

// malformed says what is wrong with a ClientHello.
func malformed(what string) error { return fmt.Errorf("malformed ClientHello: %s", what) }

// A helloReader finds the ClientHello at the beginning of a stream, which may be in any number
// of records, and comes in pieces.
type helloReader struct {
	at  int    // how much of the stream has been taken into msg, or was a record's header
	msg []byte // the handshake message so far
}

// next looks at a stream as far as it has come; each call is given all of it again. done is
// false where more is needed. The name is as the client wrote it.
func (h *helloReader) next(stream []byte) (name string, done bool, err error) {
	for {
		if len(h.msg) >= 4 {
			if h.msg[0] != 1 {
				return "", false, malformed("another message comes first")
			}
			n := int(h.msg[1])<<16 | int(h.msg[2])<<8 | int(h.msg[3])
			if n > maxHello-4-recordHeader {
				return "", false, malformed(fmt.Sprintf("longer than %d bytes", maxHello))
			}
			if len(h.msg) >= 4+n {
				name, err := serverName(h.msg[4 : 4+n])
				return name, err == nil, err
			}
		}
		rest := stream[h.at:]
		// Not TLS is known before a whole header has come.
		if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 {
			if h.at == 0 {
				return "", false, errNotTLS
			}
			return "", false, malformed("another record in between")
		}
		if len(rest) < recordHeader {
			return "", false, tooLong(stream)
		}
		n := int(rest[3])<<8 | int(rest[4])
		if n == 0 || n > maxRecord {
			return "", false, malformed("length of a record")
		}
		if len(rest) < recordHeader+n {
			return "", false, tooLong(stream)
		}
		h.msg = append(h.msg, rest[recordHeader:recordHeader+n]...)
		h.at += recordHeader + n
	}
}

func tooLong(stream []byte) error {
	if len(stream) >= maxHello {
		return malformed(fmt.Sprintf("longer than %d bytes", maxHello))
	}
	return nil
}

// serverName returns the one name in a ClientHello (RFC 8446, 4.1.2; RFC 6066, 3).
func serverName(hello []byte) (string, error) {
	b := cursor{rest: hello}
	b.bytes(2 + 32) // version, random
	if session := b.vector(1); len(session) > 32 {
		return "", malformed("session")
	}
	if suites := b.vector(2); len(suites) == 0 || len(suites)%2 != 0 {
		return "", malformed("cipher suites")
	}
	if compression := b.vector(1); len(compression) == 0 {
		return "", malformed("compression methods")
	}
	if b.short {
		return "", malformed("cut off")
	}
	if len(b.rest) == 0 {
		return "", errNoName
	}
	extensions := cursor{rest: b.vector(2)}
	if b.short || len(b.rest) != 0 {
		return "", malformed("length of the extensions")
	}
	var name string
	seen := make(map[uint16]bool)
	for len(extensions.rest) > 0 {
		kind := extensions.number(2)
		body := extensions.vector(2)
		if extensions.short {
			return "", malformed("length of an extension")
		}
		if seen[uint16(kind)] {
			if kind == extensionServerName {
				return "", errManyName
			}
			return "", malformed("an extension comes twice")
		}
		seen[uint16(kind)] = true
		if kind != extensionServerName {
			continue
		}
		var err error
		if name, err = hostName(body); err != nil {
			return "", err
		}
	}
	if name == "" {
		return "", errNoName
	}
	return name, nil
}

// hostName reads the extension server_name.
func hostName(extension []byte) (string, error) {
	e := cursor{rest: extension}
	list := cursor{rest: e.vector(2)}
	if e.short || len(e.rest) != 0 {
		return "", malformed("length of server_name")
	}
	kind := list.number(1)
	name := list.vector(2)
	switch {
	case list.short || len(name) == 0:
		return "", malformed("server_name is empty or cut off")
	case kind != 0:
		return "", malformed("server_name is no host_name")
	case len(list.rest) != 0:
		return "", errManyName
	}
	return string(name), nil
}

// A cursor reads TLS's presentation language. Once something was not there, short stays set
// and everything is empty.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) bytes(n int) []byte {
	if c.short || len(c.rest) < n {
		c.short, c.rest = true, nil
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) number(size int) int {
	n := 0
	for _, b := range c.bytes(size) {
		n = n<<8 | int(b)
	}
	return n
}

func (c *cursor) vector(size int) []byte { return c.bytes(c.number(size)) }
