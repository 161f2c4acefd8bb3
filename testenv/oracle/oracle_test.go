package oracle

import (
	"fmt"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/supervisor/box"
)

// rounds is how often each program is seen: what depends on timing differs.
const rounds = 3

func TestOracle(t *testing.T) {
	l := newLab(t)
	seen := map[audit.Kind]int{}
	for _, p := range programs {
		t.Run(p.name(), func(t *testing.T) {
			for i := range rounds {
				t.Run(fmt.Sprint(i+1), func(t *testing.T) { l.watch(t, p, seen) })
			}
		})
	}
	// Nothing would be missed where nothing is done.
	for _, c := range comparers {
		for _, kind := range c.kinds {
			if seen[kind] == 0 && !t.Failed() {
				t.Errorf("no program did what is recorded as %q", kind)
			}
			t.Logf("%s: %d", kind, seen[kind])
		}
	}
	counters, err := l.sensor.Counters()
	must(t, err)
	for name, n := range counters {
		if n != 0 {
			t.Errorf("the sensor could not do something: %s %d", name, n)
		}
	}
}

func (l *lab) watch(t *testing.T, p program, seen map[audit.Kind]int) {
	s := l.run(t, p)
	if s.exit != (box.Exit{}) || !strings.HasSuffix(s.output, "ok\n") {
		t.Errorf("it ended with %+v and wrote %s", s.exit, s.output)
	}
	c, err := compare(newWorld(s.init, s.root), s.steps, s.events)
	must(t, err)
	lines, granted := c.differences()
	if len(lines) > 0 {
		t.Errorf("%d differences:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if granted > 0 {
		t.Logf("%d recorded acts of threads that were killed in them, and that the tracer could not see", granted)
	}
	for kind := range c.acts {
		expected, _ := c.total(kind)
		seen[kind] += expected
	}
	t.Log(c)
}
