package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestParseLine(t *testing.T) {
	for _, tc := range []struct {
		line  string
		level slog.Level
		msg   string
		attrs string
	}{
		{`{"level":"warning","msg":"m","time":"t","path":"/p","error":"e"}`, slog.LevelWarn, "m", "error=e path=/p"},
		{`{"level":"info","msg":"loading plugin","id":"x"}`, slog.LevelDebug, "loading plugin", "id=x"},
		{`{"level":"fatal","msg":"f"}`, slog.LevelError, "f", ""},
		{`{"level":"info"}`, slog.LevelInfo, `{"level":"info"}`, ""},
		{`time="2026-11-29T14:00:36Z" level=error msg="a \"b\"" id=1 x="y z"`, slog.LevelError, `a "b"`, `from=shim fields=id=1 x="y z"`},
		{`time=now level=info msg=short`, slog.LevelInfo, "short", "from=shim"},
		{`panic: runtime error`, slog.LevelInfo, "panic: runtime error", ""},
		{"\xff\x00", slog.LevelInfo, "\xff\x00", ""},
	} {
		level, msg, attrs := parseLine([]byte(tc.line))
		var got []string
		for _, a := range attrs {
			got = append(got, a.String())
		}
		if level != tc.level || msg != tc.msg || strings.Join(got, " ") != tc.attrs {
			t.Errorf("%s:\n got %v %q %q\nwant %v %q %q", tc.line, level, msg, strings.Join(got, " "), tc.level, tc.msg, tc.attrs)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"level":"info","msg":"x"}`))
	f.Add([]byte(`time="t" level=info msg="x\"" a=b`))
	f.Fuzz(func(_ *testing.T, line []byte) { parseLine(line) })
}

func TestLogPipeKeepsComplaintsAndSurvivesLongLines(t *testing.T) {
	var out bytes.Buffer
	p := &logPipe{log: slog.New(slog.NewTextHandler(&out, nil))}
	long := strings.Repeat("x", 3*maxLogLine)
	p.copy(strings.NewReader(
		`{"level":"error","msg":"one","error":"why"}` + "\n" + long + "\n" + `{"level":"info","msg":"fine"}` + "\nlast words"))
	said := p.complaints()
	if len(said) != 3 || said[0] != "one: why" || len(said[1]) != maxLogLine || said[2] != "last words" {
		t.Errorf("complaints: %.80q", said)
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d lines passed on, want 4", n)
	}
}
