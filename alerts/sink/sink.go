// Package sink says what somebody is told of incidents, and what became of telling. The sinks
// themselves are packages of their own.
package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"proctor/alerts/incident"
)

// What says why a sink is told.
type What string

// The reasons.
const (
	Opened   What = "opened"  // it may be over by then
	Updated  What = "updated" // more of it, or it was acknowledged
	Resolved What = "resolved"
	Reopened What = "reopened"
	Repeated What = "repeated" // it is still so: for sinks that forget
	Test     What = "test"     // nothing happened
)

// A Notice is what a sink is to tell.
type Notice struct {
	What     What
	Incident *incident.Incident
	// Ref is what the sink returned when it last told of this incident; nil: never.
	Ref json.RawMessage
	// Loud is set where people should be notified again, beside what is edited in place.
	Loud bool
	// CatchUp, if there is any, is told instead, all as one: what came while the sink was out of
	// reach.
	CatchUp []*incident.Incident
}

// Digest is CatchUp in the order in which to show it: the most severe first, then the newest.
func (n *Notice) Digest() []*incident.Incident {
	list := slices.Clone(n.CatchUp)
	slices.SortFunc(list, func(a, b *incident.Incident) int {
		over := func(i *incident.Incident) int {
			if i.State == incident.Open {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), over(a)-over(b), b.Opened.Compare(a.Opened), strings.Compare(b.ID, a.ID))
	})
	return list
}

// A Sink tells people. Its Send is called by one goroutine at a time.
type Sink interface {
	// Send tells a notice, and returns what finds it again. Its errors are of type *Error.
	Send(ctx context.Context, n *Notice) (ref json.RawMessage, err error)
	// Traits are what it can.
	Traits() Traits
}

// Traits of a sink.
type Traits struct {
	// Edits: an update changes what was told, instead of coming after it.
	Edits bool
	// Once: telling the same twice is the same as once. It has an open incident of its own, which is
	// resolved later.
	Once bool
	// Repeat is how often an open incident must be told again, or it is taken for over; 0: never.
	Repeat time.Duration
}

// Outcome is what is known of a notice that was not confirmed.
type Outcome int

const (
	// NotSent: it can't have been seen.
	NotSent Outcome = iota
	// Unknown: it may have been.
	Unknown
	// Refused: the sink will never take it as it is configured, nor any other.
	Refused
	// Unfit: the sink will never take this one, whatever is wrong with it; it may take others. It
	// was not seen.
	Unfit
)

// An Error says what became of a notice.
type Error struct {
	Outcome    Outcome
	RetryAfter time.Duration // as the sink asked; 0: it did not
	Err        error         // no secret is in its text
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error.
func Errorf(o Outcome, format string, args ...any) *Error {
	return &Error{Outcome: o, Err: fmt.Errorf(format, args...)}
}

// As is the error as an Error: one of another type is of unknown outcome.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Outcome: Unknown, Err: err}
}
