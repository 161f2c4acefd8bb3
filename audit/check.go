package audit

import (
	"fmt"
	"time"
)

// Check says what is wrong with an event that was read from elsewhere than a record that its reader
// made: its kind and what it has must agree, and its time must be one that can be reckoned with.
func (e *Event) Check() error {
	details := map[string]bool{
		"open": e.Open != nil, "exec": e.Exec != nil, "fork": e.Fork != nil, "exit": e.Exit != nil, "net": e.Net != nil, "change": e.Change != nil,
		"refused": e.Refused != nil, "raced": e.Raced != nil, "query": e.Query != nil, "flow": e.Flow != nil, "scrub": e.Scrub != nil,
		"finding": e.Finding != nil, "start": e.Start != nil, "end": e.End != nil, "cut": e.Cut != nil, "gap": e.Gap != nil,
	}
	want := string(e.Kind)
	switch e.Kind {
	case KindConnect, KindSend, KindBind, KindListen:
		want = "net"
	case KindOOM:
		want = "" // the process is all there is
	default:
		if _, known := details[want]; !known || want == "net" {
			return fmt.Errorf("%q is no kind of event", e.Kind)
		}
	}
	for name, set := range details {
		if set && name != want {
			return fmt.Errorf("an event of kind %s has %s", e.Kind, name)
		}
	}
	if want != "" && !details[want] {
		return fmt.Errorf("an event of kind %s has no %s", e.Kind, want)
	}
	if at := e.Time; at.Before(earliest) || at.After(latest) {
		return fmt.Errorf("its time %s is not between %d and %d", at.Format(time.RFC3339), earliest.Year(), latest.Year())
	}
	return nil
}

// Times that nanoseconds since 1970 stand for, in 64 bits.
var earliest, latest = time.Unix(0, 0).UTC(), time.Date(2261, 12, 31, 23, 59, 59, 0, time.UTC)
