package audit

import (
	"strings"
	"testing"
	"time"
)

func TestCheckEvent(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, good := range []Event{
		{Time: at, Kind: KindStart, Start: &Request{}}, {Time: at, Kind: KindEnd, End: &End{}}, {Time: at, Kind: KindConnect, Net: &Network{}},
		{Time: at, Kind: KindListen, Net: &Network{}}, {Time: at, Kind: KindOOM}, {Time: at, Kind: KindRefused, Refused: &Refused{}},
		{Time: at, Kind: KindQuery, Query: &Query{}}, {Time: at, Kind: KindCut, Cut: &Cut{}},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%s: %v", good.Kind, err)
		}
	}
	for want, bad := range map[string]Event{
		"start has no start":            {Time: at, Kind: KindStart},
		"open has end":                  {Time: at, Kind: KindOpen, Open: &Open{}, End: &End{}},
		"oom has exit":                  {Time: at, Kind: KindOOM, Exit: &Exit{}},
		`"net" is no kind`:              {Time: at, Kind: "net", Net: &Network{}},
		`"" is no kind`:                 {Time: at},
		"time 1969-12-31T23:59:59Z":     {Time: time.Unix(-1, 0).UTC(), Kind: KindEnd, End: &End{}},
		"time 9999-01-01T00:00:00Z":     {Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Kind: KindEnd, End: &End{}},
		"0001-01-01T00:00:00Z is not b": {Kind: KindEnd, End: &End{}},
	} {
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
