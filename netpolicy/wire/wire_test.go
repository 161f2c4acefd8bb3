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
