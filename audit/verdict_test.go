package audit_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"proctor/audit"
)

func fields(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestVerdictStreams(t *testing.T) {
	for _, test := range []struct {
		name   string
		output audit.Output
		want   map[string]any // of stdout; nil: absent
	}{
		{"nothing", audit.Output{}, map[string]any{"stdout": "", "stdout_truncated_bytes": 0.0, "stdout_head_bytes": nil, "stdout_base64": nil}},
		{"text", audit.Output{Head: []byte("hi\n"), Total: 3}, map[string]any{"stdout": "hi\n", "stdout_truncated_bytes": 0.0, "stdout_head_bytes": nil, "stdout_base64": nil}},
		{"head and tail that meet", audit.Output{Head: []byte("ab"), Tail: []byte("cd"), Total: 4}, map[string]any{"stdout": "abcd", "stdout_truncated_bytes": 0.0, "stdout_head_bytes": nil}},
		{"truncated", audit.Output{Head: []byte("ab"), Tail: []byte("c"), Total: 10}, map[string]any{"stdout": "abc", "stdout_truncated_bytes": 7.0, "stdout_head_bytes": 2.0, "stdout_base64": nil}},
		{"truncated to nothing", audit.Output{Total: 10}, map[string]any{"stdout": "", "stdout_truncated_bytes": 10.0, "stdout_head_bytes": nil, "stdout_base64": nil}},
		{"not UTF-8", audit.Output{Head: []byte("\xff\x00"), Total: 2}, map[string]any{"stdout": "\ufffd\x00", "stdout_base64": "/wA="}},
		{"U+FFFD itself", audit.Output{Head: []byte("\ufffd"), Total: 3}, map[string]any{"stdout": "\ufffd", "stdout_base64": nil}},
		{"character split at the cap", audit.Output{Head: []byte("a\xe6\x97"), Tail: []byte("\xa5b"), Total: 100}, map[string]any{"stdout": "a日b", "stdout_truncated_bytes": 95.0, "stdout_head_bytes": 3.0, "stdout_base64": nil}},
		{"character cut off", audit.Output{Head: []byte("a\xe6\x97"), Total: 100}, map[string]any{"stdout": "a\ufffd\ufffd", "stdout_head_bytes": 3.0, "stdout_base64": "YeaX"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, stream := range []string{"stdout", "stderr"} {
				v := audit.Verdict{Stdout: test.output}
				if stream == "stderr" {
					v = audit.Verdict{Stderr: test.output}
				}
				got := fields(t, v)
				for key, want := range test.want {
					key = strings.Replace(key, "stdout", stream, 1)
					if diff := cmp.Diff(want, got[key]); diff != "" {
						t.Errorf("%s: %s", key, diff)
					}
				}
			}
		})
	}
}

func TestVerdictListsAreNeverNull(t *testing.T) {
	got := fields(t, audit.Verdict{})
	egress := got["egress"].(map[string]any)
	for name, v := range map[string]any{"outputs": got["outputs"], "allowed": egress["allowed"], "blocked": egress["blocked"]} {
		if list, ok := v.([]any); !ok || len(list) != 0 {
			t.Errorf("%s is %v, want an empty list", name, v)
		}
	}
}

func TestVerdictRoundTrip(t *testing.T) {
	output := rapid.Custom(func(t *rapid.T) audit.Output {
		part := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }))
		o := audit.Output{Head: part.Draw(t, "head")}
		o.Total = int64(len(o.Head))
		if rapid.Bool().Draw(t, "truncated") {
			o.Tail = part.Draw(t, "tail")
			o.Total += int64(len(o.Tail)) + rapid.Int64Range(1, 1<<40).Draw(t, "missing")
		}
		return o
	})
	rapid.Check(t, func(t *rapid.T) {
		v := audit.Verdict{
			Run: testRun, Status: audit.StatusExit, ExitCode: rapid.IntRange(0, 255).Draw(t, "code"), Reason: "r", Remedy: rapid.String().Draw(t, "remedy"),
			Image:  audit.ImageRef{Name: "shell", Digest: "sha256:00"},
			Stdout: output.Draw(t, "stdout"), Stderr: output.Draw(t, "stderr"),
			Outputs: []audit.OutputFile{{Name: anyText.Draw(t, "name"), Bytes: 1, SHA256: "ab"}},
			Skipped: []audit.SkippedOutput{{Name: anyText.Draw(t, "skipped"), Reason: "a FIFO"}}, SkippedMore: 3,
			Usage: audit.Usage{WallMS: 1, CPUMS: 2, MemoryPeak: 3, ProcessesPeak: 4, OOMKills: 5},
			Egress: audit.Egress{
				Allowed: []audit.Destination{}, Blocked: []audit.Destination{{Address: netip.MustParseAddr("2001:db8::5"), Port: 25, Protocol: "tcp", Count: 2, Rule: "no network granted"}},
			},
			Files: audit.FileCounts{Read: 6, Written: 7},
			Audit: audit.Summary{Counts: audit.Counts{Events: 8, Lost: 9}, Complete: true, Seal: "sha256:01"},
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(data) {
			t.Fatalf("not UTF-8: %q", data)
		}
		var back audit.Verdict
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, back, sameEvents); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestVerdictRefuses(t *testing.T) {
	for _, bad := range []string{
		`{"stdout":"abc","stdout_truncated_bytes":5,"stdout_head_bytes":4}`,
		`{"stdout":"abc","stdout_truncated_bytes":5,"stdout_head_bytes":-1}`,
		`{"stderr":"abc","stderr_truncated_bytes":-1}`,
		`{"stderr":"abc","stderr_truncated_bytes":9223372036854775807}`,
		`{"stdout_base64":"?"}`,
		`{"run":1}`,
	} {
		v := audit.Verdict{Run: "before"}
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s is taken as %+v", bad, v)
		} else if v.Run != "before" {
			t.Errorf("%s: refused, yet the value changed", bad)
		}
	}
}

func FuzzVerdictUnmarshal(f *testing.F) {
	for _, v := range []audit.Verdict{{}, {Stdout: audit.Output{Head: []byte("a\xff"), Tail: []byte("b"), Total: 9}}} {
		data, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"stdout":"abc","stdout_truncated_bytes":5,"stdout_head_bytes":-4}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v audit.Verdict
		if json.Unmarshal(data, &v) != nil {
			return
		}
		if v.Stdout.Truncated() < 0 || v.Stderr.Truncated() < 0 {
			t.Fatalf("truncated by less than nothing: %+v", v)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var w audit.Verdict
		if err := json.Unmarshal(again, &w); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(v.Stdout, w.Stdout, sameEvents); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestOutputBytesIsACopyWhereItHasToBe(t *testing.T) {
	kept := []byte("abcdef")
	o := audit.Output{Head: kept[:2], Tail: []byte("xy"), Total: 9}
	if got := string(o.Bytes()); got != "abxy" {
		t.Errorf("got %q", got)
	}
	if string(kept) != "abcdef" {
		t.Errorf("what lay behind the head is overwritten: %q", kept)
	}
}
