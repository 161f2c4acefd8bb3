package sign

import (
	"hash/maphash"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/net/publicsuffix"
)

// What makes names a tunnel: so many of one run below one domain, with so many bytes that are new
// among them. A name's new bytes are those of its labels left of what is known of the domain: of
// bucket.s3.example.com after other.s3.example.com, bucket's 6, so that only what a program chose
// counts, however it is divided into labels. Ordinary subdomains are many but short (languages,
// users, shards), so a name with fewer than shortName new bytes counts a quarter of them; those of
// content networks and buckets are long but few. 800 bytes are 20 hashes of 40 digits, and carry 500
// bytes of data in base32; a tunnel that fills its names has them in 4, and is known by the 20th.
const (
	tunnelNames = 20
	tunnelBytes = 800
	shortName   = 12
)

// What is remembered, in units of one known suffix (up to 30 bytes in a map that grows). A domain that is no
// tunnel yet has at most 4 × tunnelBytes + 126 suffixes, so that it never has to go for its own size.
const (
	maxRuns    = 8192
	maxDomains = 64      // of one run
	maxOfRun   = 8192    // units
	maxOfAll   = 1 << 20 // units: 32 MiB
	domainCost = 32      // units that a domain takes by itself
)

// names are what a run asked for, by domain.
type names struct {
	domains *simplelru.LRU[string, *domain]
	cost    int
}

type domain struct {
	known map[uint64]struct{} // hashes of what stood left of the domain, from each label on
	names int
	bytes int // new ones
	score int // bytes as they count, times four
	told  bool
}

func (one *domain) cost() int { return domainCost + len(one.known) }

// tunnel notes a name, and returns its domain when that has become a tunnel with it.
func (d *Detector) tunnel(run, name string) (below string, one *domain) {
	beyond, below := split(name)
	if beyond == "" {
		return "", nil
	}
	all := d.names(run)
	one, ok := all.domains.Get(below)
	if !ok {
		if all.domains.Len() >= maxDomains {
			d.forgetDomain(all)
		}
		one = &domain{known: map[uint64]struct{}{}}
		all.domains.Add(strings.Clone(below), one)
		d.charge(all, one.cost())
	}
	if one.told {
		return "", nil
	}
	before := one.cost()
	one.learn(d.seed, beyond)
	one.told = one.names >= tunnelNames && one.score >= 4*tunnelBytes
	if one.told {
		one.known = nil
	}
	d.charge(all, one.cost()-before)
	if !one.told {
		return "", nil
	}
	return below, one
}

// split divides a name into a registrable domain and what stands left of it. Whoever has a part of a
// private suffix (herokuapp.com, s3.amazonaws.com) can have many, so those are no suffixes here.
func split(name string) (beyond, domain string) {
	suffix, icann := publicsuffix.PublicSuffix(name)
	for !icann && strings.Contains(suffix, ".") {
		_, suffix, _ = strings.Cut(suffix, ".")
		suffix, icann = publicsuffix.PublicSuffix(suffix)
	}
	left, ok := strings.CutSuffix(name, "."+suffix)
	if !ok {
		return "", ""
	}
	i := strings.LastIndexByte(left, '.')
	return left[:max(i, 0)], name[i+1:]
}

// learn notes what stands left of the domain.
func (one *domain) learn(seed maphash.Seed, beyond string) {
	fresh := 0
	for end := len(beyond); end >= 0; {
		dot := strings.LastIndexByte(beyond[:end], '.')
		hash := maphash.String(seed, beyond[dot+1:])
		if _, ok := one.known[hash]; !ok {
			one.known[hash] = struct{}{}
			fresh += end - dot - 1
		}
		end = dot
	}
	if fresh == 0 {
		return
	}
	one.names++
	one.bytes += fresh
	if fresh >= shortName {
		one.score += 3 * fresh
	}
	one.score += fresh
}

// names returns a run's, as those that were used last.
func (d *Detector) names(run string) *names {
	all, ok := d.runs.Get(run)
	if !ok {
		if d.runs.Len() >= maxRuns {
			d.forgetRun()
		}
		all = &names{}
		all.domains, _ = simplelru.NewLRU[string, *domain](maxDomains, nil) // it refuses sizes below 1 alone
		d.runs.Add(run, all)
	}
	return all
}

// charge notes that a run takes more or less, and makes room: of the run's domains the one that was
// asked about longest ago goes, of all runs the one that asked longest ago. Neither is the one
// that takes more, which was used last.
func (d *Detector) charge(all *names, units int) {
	all.cost += units
	d.cost += units
	for all.cost > maxOfRun && all.domains.Len() > 1 {
		d.forgetDomain(all)
	}
	for d.cost > maxOfAll && d.runs.Len() > 1 {
		d.forgetRun()
	}
}

func (d *Detector) forgetDomain(all *names) {
	if _, one, ok := all.domains.RemoveOldest(); ok {
		all.cost -= one.cost()
		d.cost -= one.cost()
	}
}

func (d *Detector) forgetRun() {
	if _, all, ok := d.runs.RemoveOldest(); ok {
		d.cost -= all.cost
	}
}

// end forgets a run.
func (d *Detector) end(run string) {
	if all, ok := d.runs.Peek(run); ok {
		d.cost -= all.cost
		d.runs.Remove(run)
	}
}
