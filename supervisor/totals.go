package supervisor

import (
	"sync"

	"proctor/audit"
)

// totals are sums over the runs that have ended.
type totals struct {
	mu                                    sync.Mutex
	runs, incomplete                      uint64
	events, lost, folded, raced, blocked  uint64
	refusedCalls, filesRead, filesWritten uint64
}

func (t *totals) add(v *audit.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs++
	if !v.Audit.Complete {
		t.incomplete++
	}
	t.events += v.Audit.Events
	t.lost += v.Audit.Lost
	t.folded += v.Audit.Folded
	t.raced += v.Audit.Raced
	for _, d := range v.Egress.Blocked {
		t.blocked += uint64(d.Count)
	}
	t.blocked += uint64(v.Egress.BlockedMore)
	for _, c := range v.Refused {
		t.refusedCalls += uint64(c.Count)
	}
	t.filesRead += uint64(v.Files.Read)
	t.filesWritten += uint64(v.Files.Written)
}

func (t *totals) addTo(all map[string]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, n := range map[string]uint64{
		"runs": t.runs, "runs_incomplete": t.incomplete,
		"events": t.events, "events_lost": t.lost, "events_raced": t.raced, "acts_folded": t.folded,
		"connections_blocked": t.blocked, "calls_refused": t.refusedCalls,
		"files_read": t.filesRead, "files_written": t.filesWritten,
	} {
		all[name] = n
	}
}
