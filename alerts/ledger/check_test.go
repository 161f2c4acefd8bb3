package ledger

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"proctor/alerts/incident"
)

// busy is a file as a supervisor leaves it: incidents of many sizes, some of which grew or are forgotten.
func busy(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "alerts.db")
	l := open1(t, file)
	var all []*incident.Incident
	for n := range 60 {
		i := &incident.Incident{ID: fmt.Sprintf("%012d", n), State: incident.Open, Opened: time.Unix(1e9, 0).UTC(), Deliveries: map[string]*incident.Delivery{"s": {}}}
		for range 1 + n%20 {
			i.Alarms = append(i.Alarms, incident.Alarm{Rule: "sign.metadata", Text: "a text that is long enough to fill a page with a few of them"})
		}
		all = append(all, i)
		if err := l.Save(all[n/2:], []*incident.Silence{{ID: fmt.Sprintf("s%d", n%3), Reason: "r"}}); err != nil {
			t.Fatal(err)
		}
	}
	var gone []string
	for _, i := range all[:10] {
		gone = append(gone, i.ID)
	}
	if err := l.Forget(gone, []string{"s1"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Whatever is wrong with the file, it is opened, or another in its place, and can be written to.
// PROCTOR_FLIPS is how many files are tried.
func TestFlips(t *testing.T) {
	tries := 250
	if n, err := strconv.Atoi(os.Getenv("PROCTOR_FLIPS")); err == nil {
		tries = n
	}
	data, random := busy(t), rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	file := filepath.Join(dir, "alerts.db")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if l := open1(t, file); l.Close() != nil {
		t.Fatal("it is not whole before")
	}
	page := os.Getpagesize()
	whole, aside := 0, 0
	for n := range tries {
		bad := append([]byte{}, data...)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(bad))
			if n%2 == 0 { // where the structure is
				at = random.IntN(len(bad)/page)*page + random.IntN(128)
			}
			switch random.IntN(3) {
			case 0:
				bad[at] = byte(random.Uint32())
			case 1: // one page over another
				from := random.IntN(len(bad)/page) * page
				if n%20 == 0 {
					copy(bad[at/page*page:], bad[from:from+page])
					break
				}
				fallthrough
			default:
				bad[at] ^= 1 << random.IntN(8)
			}
		}
		if n%50 == 0 {
			bad = bad[:random.IntN(len(bad))]
		}
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		l, moved, err := Open(file)
		if err != nil {
			t.Fatalf("try %d: %v", n, err)
		}
		if moved != "" {
			aside++
			if err := os.Remove(moved); err != nil {
				t.Fatal(err)
			}
		} else {
			whole++
		}
		if moved == "" || n%10 == 0 {
			is, ss, err := l.Load()
			if err == nil {
				err = l.Save(append(is, &incident.Incident{ID: "x", Alarms: make([]incident.Alarm, 200)}), ss)
			}
			if err == nil {
				err = l.Forget([]string{"x", fmt.Sprintf("%012d", 20+n%30)}, nil)
			}
			if err != nil {
				t.Fatalf("try %d: %v", n, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d whole, %d put aside", whole, aside)
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, fd := range fds {
			if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, dir) {
				t.Errorf("%s is still open", to)
			}
		}
	}
}
