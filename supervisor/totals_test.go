package supervisor

import (
	"testing"

	"proctor/audit"
)

func TestTotals(t *testing.T) {
	var sum totals
	sum.add(&audit.Verdict{Audit: audit.Summary{Counts: audit.Counts{Events: 10, Folded: 5}, Complete: true}, Files: audit.FileCounts{Read: 3, Written: 1}})
	sum.add(&audit.Verdict{
		Audit:   audit.Summary{Counts: audit.Counts{Events: 20, Lost: 4, Raced: 1}},
		Egress:  audit.Egress{Blocked: []audit.Destination{{Count: 2}, {Count: 3}}, BlockedMore: 4},
		Refused: []audit.RefusedCall{{Call: "bpf", Count: 6}},
	})
	all := map[string]uint64{"ring_full": 4}
	sum.addTo(all)
	for name, want := range map[string]uint64{
		"ring_full": 4, "runs": 2, "runs_incomplete": 1, "events": 30, "events_lost": 4, "events_raced": 1, "acts_folded": 5,
		"connections_blocked": 9, "calls_refused": 6, "files_read": 3, "files_written": 1,
	} {
		if all[name] != want {
			t.Errorf("%s is %d, want %d", name, all[name], want)
		}
		delete(all, name)
	}
	if len(all) != 0 {
		t.Errorf("and %v", all)
	}
}
