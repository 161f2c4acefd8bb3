package audit_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/audit"
)

// The heads of files say what the whole does, up to where they end, and read no further.
func TestHeads(t *testing.T) {
	s, _ := newStore(t)
	r := create(t, s, testRun)
	if v, err := r.VerdictHead(); v != nil || err != nil {
		t.Errorf("without a verdict: %v, %v", v, err)
	}
	if c, err := r.Caller(); c != nil || err == nil {
		t.Errorf("without a request: %v, %v", c, err)
	}
	want := audit.Caller{UID: 1, GID: 2, PID: 3}
	if err := r.WriteRequest(&audit.Request{Run: testRun, Caller: want, Argv: []audit.Text{"x"}}); err != nil {
		t.Fatal(err)
	}
	v := &audit.Verdict{
		Run: testRun, Status: audit.StatusExit, ExitCode: 3, Reason: "why", Outputs: []audit.OutputFile{{Name: "n\xff", Bytes: 1}},
		Egress: audit.Egress{Blocked: []audit.Destination{{Name: "x", Count: 2}}},
		Audit:  audit.Summary{Counts: audit.Counts{Events: 7}, Complete: true},
		Stdout: audit.Output{Head: []byte("out\xff"), Total: 4},
	}
	if err := r.WriteVerdict(v); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		c, err := r.Caller()
		if err != nil || *c != want {
			t.Errorf("caller %v, %v", c, err)
		}
		head, err := r.VerdictHead()
		if err != nil {
			t.Fatal(err)
		}
		whole := *v
		whole.Stdout, whole.Stderr = audit.Output{Head: []byte{}}, audit.Output{Head: []byte{}}
		whole.Egress.Allowed = []audit.Destination{}
		if diff := cmp.Diff(&whole, head, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Error(diff)
		}
	}
	check()
	for name, key := range map[string]string{"request.json": `"image"`, "verdict.json": `"stdout"`} {
		text := string(readFile(t, r.Path(name)))
		at := strings.Index(text, key)
		// Were it read, it would be seen to be broken.
		if err := os.WriteFile(r.Path(name), []byte(text[:at]+key+": broken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check()
	for _, broken := range []string{"", "[]", `{"run":`, `{"run": 5, "stdout": ""}`, `{"run": "x"`} {
		if err := os.WriteFile(r.Path("verdict.json"), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := r.VerdictHead(); v != nil || err == nil || !strings.Contains(err.Error(), "verdict.json") {
			t.Errorf("%q: %v, %v", broken, v, err)
		}
	}
}
