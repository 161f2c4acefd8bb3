package names

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// Why a dial came to nothing.
var (
	ErrNotGranted  = errors.New("not granted")
	ErrNoName      = errors.New("no such name, or no address")
	ErrUnresolved  = errors.New("could not be resolved")
	ErrForbidden   = errors.New("only addresses that a name may not lead to")
	ErrRefused     = errors.New("connection refused")
	ErrTimeout     = errors.New("timeout")
	ErrUnreachable = errors.New("unreachable")
)

// A DialError says what could not be connected to and why.
type DialError struct {
	Name   string // empty: an address was dialled
	Port   uint16
	Reason error  // one of the errors above
	Rule   string // that was broken, where Reason is [ErrNotGranted] or [ErrForbidden]; may be empty
	// Addresses are the ones that were tried, or that were forbidden.
	Addresses []netip.Addr
	Err       error // what the system or the resolver said; nil where nobody was asked
}

// maxListed is how many addresses an error spells out.
const maxListed = 4

func (e *DialError) Error() string {
	var b strings.Builder
	if e.Name != "" {
		fmt.Fprintf(&b, "dial %q port %d: ", e.Name, e.Port)
	} else {
		fmt.Fprintf(&b, "dial port %d: ", e.Port)
	}
	b.WriteString(e.Reason.Error())
	if e.Rule != "" {
		b.WriteString(": " + e.Rule)
	}
	separator := ": "
	for _, a := range e.Addresses[:min(len(e.Addresses), maxListed)] {
		b.WriteString(separator + a.String())
		separator = ", "
	}
	if more := len(e.Addresses) - maxListed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if errors.Is(e.Reason, ErrForbidden) && e.Name != "" {
		b.WriteString("; a cidr grant of address and port would open them")
	}
	return b.String()
}

// Forbidden is the rule that keeps a granted name from every address that it has, and the first
// of these; "" where something else is wrong.
func (e *DialError) Forbidden() (rule string, at netip.AddrPort) {
	if !errors.Is(e.Reason, ErrForbidden) || e.Name == "" || len(e.Addresses) == 0 {
		return "", netip.AddrPort{}
	}
	rule = e.Name + " is granted, but leads to no public address, and no cidr grant has one that it leads to"
	return rule, netip.AddrPortFrom(e.Addresses[0], e.Port)
}

// Unwrap makes errors.Is find the reason and what the system said.
func (e *DialError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}

// classify is the reason behind the error of an attempt, or of several: a refusal, which is the
// far side's own word, before a timeout, and that before what the way there said.
func classify(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrForbidden):
		return ErrForbidden
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return ErrRefused
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return ErrTimeout
	}
	return ErrUnreachable
}
