package spike

import (
	"fmt"
	"time"
)

// By is the kind of what attempts are counted for.
type By string

// The kinds.
const (
	ByRun         By = "run"
	ByCaller      By = "caller"
	ByAgent       By = "agent"
	ByImage       By = "image"
	ByDestination By = "destination"
	ByHost        By = "host"
)

// A Rule says how many attempts are too many. See the package for the arithmetic.
type Rule struct {
	Threshold uint64        // attempts
	Window    time.Duration // in which they are counted
	Factor    float64       // of what is expected; not of a run, which has no history
	History   int           // windows after which a series is not young any more; likewise
	Off       bool          // nothing is too many
}

// Check says what is wrong with a rule: the field and why.
func (r Rule) Check() (field string, err error) {
	switch {
	case r.Off:
		return "", nil
	case r.Threshold == 0:
		return "threshold", fmt.Errorf("is 0: write how many attempts are too many")
	case r.Window < MinWindow || r.Window > MaxWindow:
		return "window", fmt.Errorf("%s is not between %s and %s", r.Window, MinWindow, MaxWindow)
	case !(r.Factor >= 1):
		return "factor", fmt.Errorf("%g is less than 1: what is expected would be too many", r.Factor)
	case r.History < 1 || r.History > maxPast:
		return "history", fmt.Errorf("%d is not between 1 and %d windows", r.History, maxPast)
	}
	return "", nil
}

// counts reports whether anything is counted by the rule.
func (r Rule) counts() bool { return !r.Off && r.Window > 0 }

// Bounds of a rule's window.
const (
	MinWindow = time.Second
	MaxWindow = 7 * 24 * time.Hour
)

// Rules are the rule of each kind.
type Rules map[By]Rule

// Defaults are what the scenarios of testenv/spikes are told apart by. A client that retries, or
// two installations of a package without network, are up to 24 attempts of one run.
func Defaults() Rules {
	slow := func(threshold uint64) Rule {
		return Rule{Threshold: threshold, Window: time.Hour, Factor: 3, History: 24}
	}
	return Rules{
		ByRun:         {Threshold: 25, Window: time.Minute, Factor: 1, History: 1},
		ByCaller:      slow(60),
		ByAgent:       slow(60),
		ByDestination: slow(60),
		ByImage:       slow(200),
		ByHost:        slow(300),
	}
}
