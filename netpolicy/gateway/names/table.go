package names

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"proctor/netpolicy/egress"
)

const (
	// Of each 256 addresses two are left out, for programs that take .0 and .255 for more than
	// a host. 198.18.0.0/24 is left to the namespace's own addresses.
	perBlock = 254
	blocks   = 511
	room     = blocks * perBlock

	// maxWildcard is how many names under wildcards a table has at the very most, so that
	// exact grants, which the author of a profile wrote one by one, have room.
	maxWildcard = room / 2

	defaultNames = 100
)

// A Table gives names their synthetic addresses. A name keeps its own as long as the table
// lives, and addresses are given in order from 198.18.1.1 on.
type Table struct {
	limit int // of names under wildcards

	mu       sync.RWMutex
	names    []string       // by number
	numbers  map[string]int // by name
	wildcard int            // how many of them stand under a wildcard
}

// NewTable makes an empty table for at most limit different names under wildcards (zero: 100).
func NewTable(limit int) *Table {
	if limit <= 0 {
		limit = defaultNames
	}
	return &Table{limit: min(limit, maxWildcard), numbers: map[string]int{}}
}

// Limit is how many names under wildcards there may be.
func (t *Table) Limit() int { return t.limit }

// Grant gives name, which grant g opens, its addresses, the same ones each time. It is false
// where the name is a new one under a wildcard and there are as many as there may be.
func (t *Table) Grant(name string, g *egress.Grant) (v4, v6 netip.Addr, ok bool) {
	if v4, v6, ok := t.Addresses(name); ok {
		return v4, v6, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n, known := t.numbers[name]
	if !known {
		if len(t.names) == room || wildcard(g) && t.wildcard >= t.limit {
			return v4, v6, false
		}
		if wildcard(g) {
			t.wildcard++
		}
		n = len(t.names)
		t.names = append(t.names, name)
		t.numbers[name] = n
	}
	v4, v6 = synthetic(n)
	return v4, v6, true
}

// Addresses are those of a name that was granted before.
func (t *Table) Addresses(name string) (v4, v6 netip.Addr, ok bool) {
	t.mu.RLock()
	n, ok := t.numbers[name]
	t.mu.RUnlock()
	if ok {
		v4, v6 = synthetic(n)
	}
	return v4, v6, ok
}

// Name is the name behind a synthetic address of either family.
func (t *Table) Name(a netip.Addr) (string, bool) {
	n, ok := number(a)
	if !ok {
		return "", false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n >= len(t.names) {
		return "", false
	}
	return t.names[n], true
}

// synthetic is the inverse of number.
func synthetic(n int) (v4, v6 netip.Addr) {
	b4, b6 := egress.Synthetic4.Addr().As4(), egress.Synthetic6.Addr().As16()
	host := binary.BigEndian.Uint32(b4[:]) + uint32(1+n/perBlock)<<8 + uint32(1+n%perBlock)
	binary.BigEndian.PutUint32(b4[:], host)
	copy(b6[12:], b4[:])
	return netip.AddrFrom4(b4), netip.AddrFrom16(b6)
}

func number(a netip.Addr) (int, bool) {
	a = a.Unmap()
	if a.Is6() {
		b := a.As16()
		if !egress.Synthetic6.Contains(a) || binary.BigEndian.Uint32(b[8:]) != 0 {
			return 0, false
		}
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !egress.Synthetic4.Contains(a) {
		return 0, false
	}
	b4, base := a.As4(), egress.Synthetic4.Addr().As4()
	offset := int(binary.BigEndian.Uint32(b4[:]) - binary.BigEndian.Uint32(base[:]))
	block, host := offset>>8, offset&0xff
	if block == 0 || host == 0 || host == 255 {
		return 0, false
	}
	return (block-1)*perBlock + host - 1, true
}
