package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/testenv/spikes"
)

// digits are n of a hash of i: data in a name.
func digits(i, n int) string {
	sum := sha256.Sum256(fmt.Append(nil, i))
	return hex.EncodeToString(sum[:])[:n]
}

// ask has a run ask for names and returns the domains that are told, with the question at which.
func ask(t *testing.T, n int, of func(int) audit.Event) (told []string) {
	t.Helper()
	d := New()
	for i := range n {
		e := of(i)
		if !Looks(&e) {
			continue
		}
		for _, s := range d.Observe(&e) {
			if s.Kind != Tunnel {
				t.Errorf("at %d: %+v", i, s)
			}
			told = append(told, fmt.Sprintf("%d: %s", i+1, s.What))
		}
	}
	return told
}

// A tunnel is told of once, at the first name with which there are enough and enough in them.
func TestTunnel(t *testing.T) {
	for name, test := range map[string]struct {
		of   func(int) string
		told string
	}{
		"full names":      {func(i int) string { return digits(i, 60) + "." + digits(-i-1, 60) + ".t.evil.example" }, "20: evil.example, in 20 names with 2401 bytes"},
		"40 digits":       {func(i int) string { return digits(i, 40) + ".evil.example" }, "20: evil.example, in 20 names with 800 bytes"},
		"short of a hash": {func(i int) string { return digits(i, 23) + ".t.evil.example" }, "35: evil.example, in 35 names with 806 bytes"},
		"short":           {func(i int) string { return digits(i, 8) + ".evil.example" }, "400: evil.example, in 400 names with 3200 bytes"},
		"small labels":    {func(i int) string { return strings.Join(strings.Split(digits(i, 40), ""), ".") + ".evil.example" }, "21: evil.example, in 21 names with 829 bytes"},
		"other spelling":  {func(i int) string { return strings.ToUpper(digits(i, 40)) + ".Evil.Example" }, "20: evil.example, in 20 names with 800 bytes"},
		"private suffix":  {func(i int) string { return digits(i, 40) + ".herokuapp.com" }, "20: herokuapp.com, in 20 names with 800 bytes"},
		"below one":       {func(i int) string { return "x." + digits(i, 40) + ".s3.dualstack.eu-west-1.amazonaws.com" }, "20: amazonaws.com, in 20 names with 840 bytes"},
		"two levels":      {func(i int) string { return digits(i, 40) + ".evil.co.uk" }, "20: evil.co.uk, in 20 names with 800 bytes"},
		"slow": {func(i int) string { // between any two names 60 others of domains that have some already
			if i < 63*19 || i%61 != 0 {
				return digits(i, 40) + fmt.Sprintf(".decoy%d.example", i%60)
			}
			return digits(i, 40) + ".evil.example"
		}, "evil.example, in 20 names with 800 bytes"},
	} {
		for _, by := range []func(audit.Text, audit.Decision) audit.Event{
			func(n audit.Text, d audit.Decision) audit.Event {
				return audit.Event{Run: "r", Query: &audit.Query{Name: n, Decision: d}}
			},
			func(n audit.Text, d audit.Decision) audit.Event {
				return audit.Event{Run: "r", Flow: &audit.Flow{Name: n, Proxy: true, Decision: d}}
			},
		} {
			for _, decision := range []audit.Decision{audit.Blocked, audit.Allowed} {
				told := ask(t, 4000, func(i int) audit.Event { return by(audit.Text(test.of(i)), decision) })
				if name == "slow" {
					told = slices.DeleteFunc(told, func(s string) bool { return strings.Contains(s, "decoy") })
					if len(told) == 1 {
						_, told[0], _ = strings.Cut(told[0], " ")
					}
				}
				if !slices.Equal(told, []string{test.told}) {
					t.Errorf("%s, %s: %q", name, decision, told)
				}
			}
		}
	}
}

// Sixty-four domains, with some names each, do not keep one more from being looked at, whether they
// are told of or not.
func TestTunnelBehindDecoys(t *testing.T) {
	for _, each := range []int{1, 19, 25} {
		told := ask(t, 64*each+20, func(i int) audit.Event {
			if i < 64*each {
				return query(fmt.Sprintf("%s.decoy%d.example", digits(i, 50), i/each))
			}
			return query(digits(i, 50) + ".evil.example")
		})
		if len(told) == 0 || !strings.HasSuffix(told[len(told)-1], ": evil.example, in 20 names with 1000 bytes") {
			t.Errorf("after %d names of each: %q", each, told)
		}
	}
}

// What ordinary programs ask for is no tunnel.
func TestNoTunnel(t *testing.T) {
	for name, of := range map[string]func(int) string{
		"languages":          func(i int) string { return fmt.Sprintf("l%d.wiki.example", i%350) },
		"shards":             func(i int) string { return fmt.Sprintf("tile-%d.map.example", i%64) },
		"one long name":      func(int) string { return digits(0, 60) + ".cdn.example" },
		"few hashes":         func(i int) string { return digits(i%15, 60) + ".cdn.example" },
		"some distributions": func(i int) string { return "d" + digits(i%50, 13) + ".cloudfront.net" },
		"some buckets":       func(i int) string { return "team-data-" + digits(i%30, 8) + ".s3.eu-central-1.amazonaws.com" },
		"long constant part": func(i int) string {
			return fmt.Sprintf("node%d.a-long-name-of-some-cluster.in-a-region-far-away.example.com", i%150)
		},
		"packages": func(i int) string {
			return []string{"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "cdn-lfs-us-1.huggingface.co", "security.debian.org"}[i%5]
		},
		"many domains":       func(i int) string { return fmt.Sprintf("%s.site%d.example", digits(i, 40), i) },
		"addresses":          func(i int) string { return fmt.Sprintf("192.0.2.%d", i%256) },
		"names of addresses": func(i int) string { return fmt.Sprintf("%d.%d.2.192.in-addr.arpa", i%256, i/256) },
		"of IPv6": func(i int) string {
			return strings.Join(strings.Split(digits(i, 24), ""), ".") + ".8.b.d.0.1.0.0.2.ip6.arpa"
		},
		"no domain": func(i int) string { return digits(i, 60) },
		"suffixes":  func(i int) string { return digits(i, 40) + ".co.uk" },
		"nonsense": func(i int) string {
			return strings.Repeat(".", i%5) + strings.Repeat("\xff", i%7) + strings.Repeat(".", i%3)
		},
	} {
		if told := ask(t, 2000, func(i int) audit.Event { return query(of(i)) }); told != nil {
			t.Errorf("%s: %q", name, told)
		}
	}
	for _, s := range spikes.All() {
		d := New()
		for i := range s.Events {
			if got := d.Observe(&s.Events[i]); got != nil {
				t.Errorf("%s: %+v", s.Name, got)
			}
		}
	}
	// Each run by itself.
	if told := ask(t, 100, func(i int) audit.Event {
		e := query(digits(i, 60) + ".evil.example")
		e.Run = fmt.Sprint(i % 10)
		return e
	}); told != nil {
		t.Errorf("ten of each run: %q", told)
	}
}

// Whatever runs ask for, no more is remembered than is said, and what ended is forgotten.
func TestMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	worst := strings.TrimSuffix(strings.Repeat("a.", 60), ".")
	for what, of := range map[string]func(int) string{
		"names of many labels": func(i int) string { return fmt.Sprintf("%s.%d.%s-%d.example", worst, i, strings.Repeat("x", 50), i%60) },
		"many domains":         func(i int) string { return fmt.Sprintf("a.%s-%d.example", strings.Repeat("x", 50), i) },
	} {
		const each = 150 // of one run
		before := heap()
		d := New()
		for i := 0; i < 5_000_000 && d.runs.Len() == i/each+min(1, i%each); i++ { // until one is forgotten
			e := query(of(i))
			e.Run = fmt.Sprint(i / each)
			d.Observe(&e)
			if all, _ := d.runs.Peek(e.Run); all.cost > maxOfRun || d.cost > maxOfAll {
				t.Fatalf("%s: at %d: a run takes %d, all %d", what, i, all.cost, d.cost)
			}
		}
		took := heap() - before
		t.Logf("%s: %d runs, %d units, %d bytes", what, d.runs.Len(), d.cost, took)
		if took > 32<<20 || d.cost < maxOfAll*9/10 {
			t.Errorf("%s: %d runs, %d units take %d bytes", what, d.runs.Len(), d.cost, took)
		}
		for _, run := range d.runs.Keys() {
			d.Observe(&audit.Event{Run: run, End: &audit.End{}})
		}
		if d.cost != 0 || d.runs.Len() != 0 {
			t.Errorf("%s: %d runs and %d units are left", what, d.runs.Len(), d.cost)
		}
	}
}
