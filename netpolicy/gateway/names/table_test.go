package names

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"proctor/netpolicy/egress"
)

func TestTable(t *testing.T) {
	exact, wild := &egress.Grant{Host: "api.example"}, &egress.Grant{Host: "*.files.example"}
	table := NewTable(2)
	for i, want := range []struct {
		name   string
		grant  *egress.Grant
		v4, v6 string // empty: no room
	}{
		{"api.example", exact, "198.18.1.1", "fd70:726f:6374:6f72::c612:101"},
		{"a.files.example", wild, "198.18.1.2", "fd70:726f:6374:6f72::c612:102"},
		{"api.example", exact, "198.18.1.1", "fd70:726f:6374:6f72::c612:101"},
		{"b.files.example", wild, "198.18.1.3", "fd70:726f:6374:6f72::c612:103"},
		{"c.files.example", wild, "", ""},
		{"a.files.example", wild, "198.18.1.2", "fd70:726f:6374:6f72::c612:102"},
		{"d.files.example", nil, "", ""}, // a grant that says nothing is not an exact one
		{"other.example", &egress.Grant{Host: "other.example"}, "198.18.1.4", "fd70:726f:6374:6f72::c612:104"},
	} {
		v4, v6, ok := table.Grant(want.name, want.grant)
		if ok != (want.v4 != "") {
			t.Errorf("%d: %s: granted is %v", i, want.name, ok)
		}
		if !ok {
			continue
		}
		if v4.String() != want.v4 || v6.String() != want.v6 {
			t.Errorf("%d: %s is %s and %s, want %s and %s", i, want.name, v4, v6, want.v4, want.v6)
		}
		for _, a := range []netip.Addr{v4, v6, netip.AddrFrom16(v4.As16())} {
			if name, ok := table.Name(a); !ok || name != want.name {
				t.Errorf("%s stands for %q, want %q", a, name, want.name)
			}
		}
	}
	for _, s := range []string{
		"198.18.1.5", "198.18.0.1", "198.18.1.0", "198.18.0.255", "198.18.1.255", "198.19.255.255", "198.17.1.1", "192.0.2.1",
		"fd70:726f:6374:6f72::", "fd70:726f:6374:6f72:0:1:c612:101", "fd70:726f:6374:6f73::c612:101", "::c612:101", "::1",
	} {
		if name, ok := table.Name(netip.MustParseAddr(s)); ok {
			t.Errorf("%s stands for %q", s, name)
		}
	}
	if name, ok := table.Name(netip.Addr{}); ok {
		t.Errorf("no address stands for %q", name)
	}
	if _, _, ok := table.Addresses("c.files.example"); ok {
		t.Error("a name that had no room has addresses")
	}
}

func TestSyntheticAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, room-1).Draw(t, "n")
		v4, v6 := synthetic(n)
		if !egress.Synthetic4.Contains(v4) || !egress.Synthetic6.Contains(v6) {
			t.Fatalf("%s and %s are not of the ranges", v4, v6)
		}
		if last := v4.As4()[3]; last == 0 || last == 255 || netip.MustParsePrefix("198.18.0.0/24").Contains(v4) {
			t.Fatalf("%s is one that is left out", v4)
		}
		for _, a := range []netip.Addr{v4, v6} {
			if back, ok := number(a); !ok || back != n {
				t.Fatalf("%s is number %d, want %d", a, back, n)
			}
		}
	})
	if v4, _ := synthetic(room - 1); v4.String() != "198.19.255.254" {
		t.Errorf("the last address is %s", v4)
	}
}

// A full house of names under wildcards leaves room for what was granted one by one.
func TestTableKeepsRoom(t *testing.T) {
	table := NewTable(1 << 30)
	wild, exact := &egress.Grant{Host: "*.example"}, &egress.Grant{Host: "x"}
	n := 0
	for ; ; n++ {
		if _, _, ok := table.Grant(fmt.Sprintf("n%d.example", n), wild); !ok {
			break
		}
	}
	if n != maxWildcard {
		t.Errorf("room for %d", n)
	}
	seen := map[netip.Addr]bool{}
	for i := range room - n {
		v4, _, ok := table.Grant(fmt.Sprintf("e%d.test", i), exact)
		if !ok || seen[v4] {
			t.Fatalf("exact grant %d: %s, %v", i, v4, ok)
		}
		seen[v4] = true
	}
	if v4, _, ok := table.Grant("one.more.test", exact); ok {
		t.Errorf("one more than there is room for has %s", v4)
	}
}

func TestTableConcurrent(t *testing.T) {
	table := NewTable(50)
	wild := &egress.Grant{Host: "*.example"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("n%d.example", i)
				v4, v6, ok := table.Grant(name, wild)
				if !ok {
					continue
				}
				for _, a := range []netip.Addr{v4, v6} {
					if got, _ := table.Name(a); got != name {
						t.Errorf("%s stands for %q, want %q", a, got, name)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(table.names) != 50 {
		t.Errorf("%d names", len(table.names))
	}
}
