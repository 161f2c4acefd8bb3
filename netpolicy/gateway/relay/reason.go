package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// forbidden is an error of a [Dialer] for a name that is granted and has no address that may be
// connected to. The rule is "" where something else is wrong.
type forbidden interface {
	error
	Forbidden() (rule string, at netip.AddrPort)
}

// reason says in a few words why a connection to the outside was not made.
func (r *Relay) reason(err error) string {
	if r.Reason != nil {
		if words := r.Reason(err); words != "" {
			return printable(words)
		}
	}
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errEnded), errors.Is(err, context.Canceled):
		return errEnded.Error()
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such name"
	case errors.Is(err, unix.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, unix.ECONNRESET):
		return "connection reset"
	}
	return printable(err.Error())
}

// printable makes text fit for a header field and for one line: plain ASCII, and not long.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}
