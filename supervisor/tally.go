package supervisor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"proctor/audit"
	"proctor/netpolicy"
)

// initPID is a box's init inside its PID namespace.
const initPID = 1

// tally sums up a run's events for its verdict, and follows its main process: the first one
// that init forked. How that one ended is taken from the kernel, not from anything that the
// code could have a hand in.
type tally struct {
	main    uint32 // inside the run; 0 until it was forked
	exit    *audit.Exit
	oom     int64
	mainOOM bool

	files   audit.FileCounts
	blocked map[destination]int64
	refused map[string]int64

	// What the maps have no room for.
	blockedMore, allowedMore, refusedMore int64
	foreign                               bool // a call of another ABI ended a thread
	allowed                               map[destination]int64

	egress   reconciliation
	findings int
}

type destination struct {
	name     audit.Text
	address  netip.Addr
	port     uint16
	protocol string
	rule     string
}

func newTally() *tally {
	return &tally{
		blocked: map[destination]int64{}, allowed: map[destination]int64{}, refused: map[string]int64{},
		egress: newReconciliation(),
	}
}

// What a verdict lists at most. Past it, attempts are in the record only.
const (
	maxDestinations = 1000
	maxRefusals     = 100
)

func (t *tally) add(e *audit.Event) {
	switch e.Kind {
	case audit.KindFork:
		if t.main == 0 && e.Process.PID == initPID {
			t.main = e.Fork.Child
		}
	case audit.KindExit:
		if t.exit == nil && t.main != 0 && e.Process.PID == t.main {
			t.exit = e.Exit
		}
	case audit.KindOOM:
		t.oom++
		t.mainOOM = t.mainOOM || (t.main != 0 && e.Process.PID == t.main)
	case audit.KindOpen:
		if e.Open.Errno != "" {
			return
		}
		switch e.Open.Access {
		case audit.AccessRead:
			t.files.Read += int64(e.Acts())
		case audit.AccessWrite, audit.AccessBoth:
			t.files.Written += int64(e.Acts())
		}
	case audit.KindConnect, audit.KindSend:
		t.egress.kernel(e)
		d := destination{e.Net.Host, e.Net.Address, e.Net.Port, e.Net.Protocol, e.Net.Rule}
		if e.Net.Decision == audit.Blocked {
			t.note(t.blocked, &t.blockedMore, d, e.Acts())
		}
		// Of what the kernel lets through, the gateway has more to say.
	case audit.KindQuery:
		t.egress.query(e.Query)
		if e.Query.Decision == audit.Blocked {
			t.note(t.blocked, &t.blockedMore, destination{name: e.Query.Name, port: netpolicy.DNS, protocol: "dns", rule: e.Query.Rule}, 1)
		}
	case audit.KindFlow:
		t.egress.flow(e.Flow)
		flows := uint64(max(1, e.Flow.Count))
		d := destination{e.Flow.Name, e.Flow.Address, e.Flow.Port, e.Flow.Protocol, e.Flow.Rule}
		if e.Flow.Decision == audit.Blocked {
			t.note(t.blocked, &t.blockedMore, d, flows)
		} else {
			t.note(t.allowed, &t.allowedMore, d, flows)
		}
	case audit.KindFinding:
		t.findings++
	case audit.KindChange:
		if e.Change.Errno == "" {
			t.files.Changed += int64(e.Acts())
		}
	case audit.KindRefused:
		name := refusedName(e.Refused)
		if _, known := t.refused[name]; known || len(t.refused) < maxRefusals {
			t.refused[name] += int64(e.Acts())
		} else {
			t.refusedMore += int64(e.Acts())
		}
		t.foreign = t.foreign || e.Refused.Signal != ""
	}
}

// note counts attempts at a destination.
func (t *tally) note(into map[destination]int64, more *int64, d destination, acts uint64) {
	if _, known := into[d]; known || len(into) < maxDestinations {
		into[d] += int64(acts)
	} else {
		*more += int64(acts)
	}
}

// refusedName is one under which calls are counted together.
func refusedName(r *audit.Refused) string {
	name := r.Call
	if name == "" {
		name = fmt.Sprintf("number %d", r.Number)
	}
	switch {
	case r.Socket != nil:
		return fmt.Sprintf("%s(%s, %s, %d)", name, r.Socket.Family, r.Socket.Type, r.Socket.Protocol)
	case r.Signal != "":
		return fmt.Sprintf("%s (%s)", name, r.ABI)
	}
	return name
}

// refusals lists the calls, most tried first.
func (t *tally) refusals() []audit.RefusedCall {
	var l []audit.RefusedCall
	for name, n := range t.refused {
		l = append(l, audit.RefusedCall{Call: name, Count: n})
	}
	slices.SortFunc(l, func(a, b audit.RefusedCall) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Call, b.Call))
	})
	return l
}

// destinations lists them, most tried first.
func (t *tally) destinations() audit.Egress {
	list := func(m map[destination]int64, remedy func(destination) string) []audit.Destination {
		var l []audit.Destination
		for d, n := range m {
			l = append(l, audit.Destination{Name: d.name, Address: d.address, Port: d.port, Protocol: d.protocol, Count: n, Rule: d.rule, Remedy: remedy(d)})
		}
		slices.SortFunc(l, func(a, b audit.Destination) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address),
				cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Rule, b.Rule))
		})
		return l
	}
	none := func(destination) string { return "" }
	return audit.Egress{
		Allowed: list(t.allowed, none), Blocked: list(t.blocked, remedyFor),
		AllowedMore: t.allowedMore, BlockedMore: t.blockedMore, Findings: t.findings,
	}
}
