package wire_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/audit"
	"proctor/netpolicy/wire"
)

func TestReports(t *testing.T) {
	var buf bytes.Buffer
	w := wire.NewWriter(&buf)
	sent := []wire.Report{
		{Ready: &wire.Ready{CA: []byte("certificate")}},
		{},
		{Query: &audit.Query{Name: "a\nb\xff.example", Type: "A", Server: netip.MustParseAddrPort("192.0.2.53:53"), Decision: audit.Blocked, Rule: "r"}},
		{Flow: &audit.Flow{Protocol: "tcp", Address: netip.MustParseAddr("198.18.1.1"), Port: 443}},
		{Scrub: &audit.Scrub{Credential: "c", Count: 2}},
		{Done: &wire.Done{Queries: 1, Flows: 1}},
	}
	for _, r := range sent {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Count(buf.String(), "\n"); lines != len(sent) {
		t.Errorf("%d lines for %d reports", lines, len(sent))
	}
	r := wire.NewReader(&buf)
	for _, want := range sent {
		got, err := r.Read()
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}), cmpopts.IgnoreFields(wire.Report{}, "Size")); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Whatever a report quotes, the next one can be read.
func TestLongReports(t *testing.T) {
	var buf bytes.Buffer
	w := wire.NewWriter(&buf)
	long := strings.Repeat("<", 100<<10)
	flow := &audit.Flow{
		Protocol: long, Name: audit.Text(strings.Repeat("\x00", 100<<10)), Claimed: audit.Text(long), Decision: audit.Blocked,
		Rule: "no: " + long, Credential: long, Error: long, Port: 443, BytesUp: 7,
	}
	for _, r := range []wire.Report{
		{Flow: flow},
		{Query: &audit.Query{Name: audit.Text(long), Type: long, Protocol: long, Rule: long, Code: long, Answers: make([]netip.Addr, 100<<10)}},
		{Scrub: &audit.Scrub{Credential: long, Name: audit.Text(long), Where: long, Count: 3}},
	} {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if flow.Protocol != long {
		t.Error("the caller's report is changed")
	}
	if err := w.Write(wire.Report{Ready: &wire.Ready{CA: make([]byte, 256<<10)}}); err == nil {
		t.Error("a report that can't be clipped is sent")
	}
	// The longest that is taken as it is: its line is 256 KiB.
	whole := wire.Report{Scrub: &audit.Scrub{}}
	if err := w.Write(whole); err != nil {
		t.Fatal(err)
	}
	bare := buf.Len() - 1 - bytes.LastIndexByte(buf.Bytes()[:buf.Len()-1], '\n')
	whole.Scrub.Where = strings.Repeat("x", 256<<10-bare)
	over := wire.Report{Scrub: &audit.Scrub{Where: whole.Scrub.Where + "x"}}
	for _, r := range []wire.Report{whole, over} {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}

	r := wire.NewReader(&buf)
	next := func() wire.Report {
		t.Helper()
		got, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if f := next().Flow; f.Port != 443 || f.BytesUp != 7 || f.Decision != audit.Blocked ||
		!strings.HasPrefix(f.Rule, "no: <<<") || !strings.HasSuffix(f.Rule, "< (98308 bytes more)") {
		t.Errorf("flow %+v", f)
	}
	if q := next().Query; len(q.Answers) != 64 || !strings.HasSuffix(q.Rule, " bytes more) (102336 answers more)") {
		t.Errorf("query %+v", q)
	}
	if s := next().Scrub; s.Count != 3 {
		t.Errorf("scrub %+v", s)
	}
	next()
	if s := next().Scrub; s.Where != whole.Scrub.Where {
		t.Errorf("the longest that is taken is clipped to %d bytes", len(s.Where))
	}
	if s := next().Scrub; !strings.HasSuffix(s.Where, " bytes more)") {
		t.Errorf("%d bytes", len(s.Where))
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a long line":  `{"query":{"name":"` + strings.Repeat("x", 300<<10) + `"}}` + "\n",
		"no end":       strings.Repeat("x", 10<<20),
		"no JSON":      "hello\n",
		"half a line":  `{"done":`,
		"another type": `{"query":7}` + "\n",
	} {
		if got, err := wire.NewReader(strings.NewReader(text)).Read(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// What can't be read may hold secrets.
func TestReadConfigTellsNothing(t *testing.T) {
	_, err := wire.ReadConfig(strings.NewReader(`{"secrets":{"a":"c2VjcmV0"},"run":7}` + "\n"))
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "c2Vj") {
		t.Errorf("%v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"flow":{"protocol":"tcp","address":"::1","port":1}}` + "\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for r := wire.NewReader(bytes.NewReader(data)); ; {
			if _, err := r.Read(); err != nil {
				return
			}
		}
	})
}
