package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// Whatever is changed in a record is found, and an untouched one agrees, wherever it lies.
func TestAuditVerifyRoot(t *testing.T) {
	s := root(t)
	v := s.verdict(t, "sh", "cat /etc/hosts >/outputs/kept; ls / >/dev/null")
	record := s.recordDir(v.Run)
	seals := []string{"--seal", v.Audit.Seal}
	for _, args := range [][]string{{v.Run}, append(seals, v.Run), {record}, append(seals, record)} {
		r := s.proctor(t, "", append([]string{"audit", "verify"}, args...)...)
		if r.code != 0 || !strings.Contains(r.stdout, "complete: events=") || !strings.Contains(r.stdout, v.Audit.Seal) || !strings.Contains(r.stdout, "outputs  1 as they were") {
			t.Errorf("verify %v: %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	if r := s.proctor(t, "", "audit", "verify", "--seal", "sha256:"+strings.Repeat("0", 64), v.Run); r.code != 1 || !strings.Contains(r.stdout, "as is asked for") {
		t.Errorf("another seal: %d\n%s", r.code, r.stdout)
	}

	edit := func(name string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			changed := change(bytes.Clone(data))
			if bytes.Equal(changed, data) {
				t.Fatalf("%s is as it was", name)
			}
			if err := os.WriteFile(filepath.Join(dir, name), changed, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(data []byte) []byte { return bytes.Replace(data, []byte(from), []byte(to), 1) }
	}
	line := func(n int) func([]byte) []byte {
		return func(data []byte) []byte {
			lines := bytes.SplitAfter(data, []byte("\n"))
			return bytes.Join(append(lines[:n:n], lines[n+1:]...), nil)
		}
	}
	for name, try := range map[string]struct {
		change func(*testing.T, string)
		want   string
		shown  bool // by audit show as well, which looks at the events
	}{
		"a path":          {edit("events.jsonl", replace("/etc/hosts", "/etc/ghost")), "does not match its seal", true},
		"an event away":   {edit("events.jsonl", line(3)), "numbered events, and ends with", true},
		"the end away":    {edit("events.jsonl", func(b []byte) []byte { return b[:bytes.LastIndexByte(bytes.TrimSpace(b), '\n')+1] }), "it has no end", true},
		"nothing left":    {edit("events.jsonl", func([]byte) []byte { return nil }), "it has no end", true},
		"more":            {edit("events.jsonl", func(b []byte) []byte { return append(b, b[:bytes.IndexByte(b, '\n')+1]...) }), "comes after the end", true},
		"no event":        {edit("events.jsonl", func(b []byte) []byte { return append([]byte("garbage \x1b[31m\n"), b...) }), "line 1 is no event", true},
		"cut":             {edit("events.jsonl", func(b []byte) []byte { return b[:len(b)-5] }), "is not finished", true},
		"verdict's seal":  {edit("verdict.json", replace(v.Audit.Seal, "sha256:"+strings.Repeat("1", 64))), "does not match its seal", true},
		"verdict's count": {edit("verdict.json", replace(`"lost": 0`, `"lost": 2`)), "and the verdict has", true},
		"code":            {edit("code", replace("hosts", "HOSTS")), "code has sha256", false},
		"output":          {edit("outputs/0", func(b []byte) []byte { return append(b, '!') }), "outputs/0 has sha256", false},
		"no output": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "outputs/0")); err != nil {
				t.Fatal(err)
			}
		}, "outputs/0 is missing", false},
	} {
		t.Run(name, func(t *testing.T) {
			keep := filepath.Join(testenv.Dir(t), "keep")
			if err := os.CopyFS(keep, os.DirFS(record)); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.CopyFS(record+".new", os.DirFS(keep)); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(record); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(record+".new", record); err != nil {
					t.Fatal(err)
				}
			}()
			try.change(t, record)
			for _, what := range []string{v.Run, record} {
				r := s.proctor(t, "", "audit", "verify", what)
				if r.code != 1 || !strings.Contains(r.stdout, try.want) || strings.Contains(r.stdout+r.stderr, "\x1b") {
					t.Errorf("verify %s: %d\n%s%s", what, r.code, r.stdout, r.stderr)
				}
				var got audit.Verification
				r = s.proctor(t, "", "audit", "verify", "-o", "json", what)
				if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 1 || got.Intact || got.Complete || len(got.Problems) == 0 {
					t.Errorf("verify -o json %s: %d, %v\n%s", what, r.code, err, r.stdout)
				}
			}
			for _, format := range []string{"text", "json"} {
				r := s.proctor(t, "", "audit", "show", "-o", format, v.Run)
				if (r.code == 1) != try.shown || strings.Contains(r.stdout, "record   complete") == try.shown && format == "text" {
					t.Errorf("audit show -o %s: %d\n%s%s", format, r.code, r.stdout, r.stderr)
				}
			}
			if r := s.proctor(t, "", "audit", "show", "--code", v.Run); (r.code == 1) != (name == "code") {
				t.Errorf("audit show --code: %d %s", r.code, r.stderr)
			}
		})
	}
	if r := s.proctor(t, "", "audit", "verify", v.Run); r.code != 0 {
		t.Fatalf("put back: %d\n%s", r.code, r.stdout)
	}

	// What lies in a record's place is no way to other files, nor to wait for ever.
	events := filepath.Join(record, "events.jsonl")
	if err := os.Rename(events, events+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", events); err != nil {
		t.Fatal(err)
	}
	if r := s.proctor(t, "", "audit", "show", "-o", "json", v.Run); r.code == 0 || strings.Contains(r.stdout, "root:") {
		t.Errorf("a link: %d\n%s", r.code, r.stdout)
	}
	if err := os.Remove(events); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(events, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"show", v.Run}, {"verify", record}} {
		if r := s.proctor(t, "", append([]string{"audit"}, args...)...); r.code != 125 {
			t.Errorf("a pipe: %v: %d\n%s", args, r.code, r.stderr)
		}
	}
	if err := os.Rename(events+".kept", events); err != nil {
		t.Fatal(err)
	}
}
