package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

// A comparer knows what the sensor has to say about one kind of act.
type comparer struct {
	kinds []audit.Kind
	calls []string // system calls that are such acts
	// expect returns the events that must be recorded for a step of somebody; none if it is
	// not such an act. It returns them as they are without what [common] takes away.
	expect func(w *world, by actor, s strace.Step) ([]audit.Event, error)
}

var comparers = []comparer{opens, execs, forks, exits, network}

// tracedCalls are all calls that the tracer has to tell of.
func tracedCalls() []string {
	names := slices.Clone(worldCalls)
	for _, c := range comparers {
		names = append(names, c.calls...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// times is how many acts an event stands for.
func times(e audit.Event) int { return int(e.Acts()) }

// A count is of one act, in the words that both sides are brought to.
type count struct {
	event              audit.Event
	expected, recorded int
}

// A comparison is what came of one run.
type comparison struct {
	acts map[audit.Kind]map[string]count
	cut  cutShort
	// others counts events of kinds that no comparer knows.
	others map[audit.Kind]int
}

// nothing is what common leaves of the fields that it takes away first, in JSON.
const nothing = `"run":"","seq":0,"time":"0001-01-01T00:00:00Z",`

func (c *comparison) add(e audit.Event, n count) {
	acts := c.acts[e.Kind]
	if acts == nil {
		acts = map[string]count{}
		c.acts[e.Kind] = acts
	}
	text, err := json.Marshal(common(e))
	if err != nil {
		text = fmt.Appendf(nil, "%+v: %v", e, err)
	}
	act := strings.Replace(string(text), nothing, "", 1)
	have := acts[act]
	acts[act] = count{e, have.expected + n.expected, have.recorded + n.recorded}
}

// compare holds a record against a trace.
func compare(w *world, steps []strace.Step, events []audit.Event) (*comparison, error) {
	c := &comparison{acts: map[audit.Kind]map[string]count{}, cut: cutShort{}, others: map[audit.Kind]int{}}
	for i, s := range steps {
		w.meet(thread(s), steps[i:])
		by, err := w.actor(s)
		if err == nil {
			err = c.step(w, by, s)
		}
		if err != nil {
			return nil, fmt.Errorf("%+v %+v: %w", s.Call, s.End, err)
		}
	}
	known := map[audit.Kind]bool{}
	for _, k := range comparers {
		for _, kind := range k.kinds {
			known[kind] = true
		}
	}
	for _, e := range events {
		if known[e.Kind] {
			c.add(e, count{recorded: times(e)})
		} else {
			c.others[e.Kind] += times(e)
		}
	}
	return c, nil
}

func (c *comparison) step(w *world, by actor, s strace.Step) error {
	if s.Call != nil {
		if err := w.before(by, s.Call); err != nil {
			return err
		}
	}
	for _, k := range comparers {
		if s.Call != nil && !slices.Contains(k.calls, s.Call.Name) {
			continue
		}
		events, err := k.expect(w, by, s)
		if err != nil {
			return err
		}
		c.cut.note(by, s, k)
		for _, e := range events {
			c.add(e, count{expected: 1})
		}
	}
	if s.Call != nil {
		return w.after(by, s.Call)
	}
	return nil
}

// differences has a line for every act that one side has more often than the other. granted
// is how many more the record may have, see [cutShort].
func (c *comparison) differences() (lines []string, granted int) {
	cut := maps.Clone(c.cut)
	for _, kind := range slices.Sorted(maps.Keys(c.acts)) {
		for _, act := range slices.Sorted(maps.Keys(c.acts[kind])) {
			n := c.acts[kind][act]
			if n.expected > n.recorded {
				lines = append(lines, fmt.Sprintf("not recorded, %d of %d: %s", n.expected-n.recorded, n.expected, act))
			}
			if more := n.recorded - n.expected; more > 0 {
				taken := cut.take(n.event, more)
				granted += taken
				if more > taken {
					lines = append(lines, fmt.Sprintf("invented, %d of %d: %s", more-taken, n.recorded, act))
				}
			}
		}
	}
	return lines, granted
}

// total is how often each kind was expected, and how often of that it was recorded.
func (c *comparison) total(kind audit.Kind) (expected, found int) {
	for _, n := range c.acts[kind] {
		expected += n.expected
		found += min(n.expected, n.recorded)
	}
	return expected, found
}

func (c *comparison) String() string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(c.acts)) {
		expected, found := c.total(kind)
		words = append(words, fmt.Sprintf("%s %d/%d", kind, found, expected))
	}
	for _, kind := range slices.Sorted(maps.Keys(c.others)) {
		words = append(words, fmt.Sprintf("%s %d, not compared", kind, c.others[kind]))
	}
	return strings.Join(words, ", ")
}
