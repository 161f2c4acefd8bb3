package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

const (
	maxLogLine  = 64 << 10 // bytes; the rest of a longer line is dropped
	lastLogKept = 3        // lines that an error about a failed start can quote
)

// logPipe passes on what containerd and its shims write to stderr, and remembers the
// last complaints for the error that a failed start returns.
type logPipe struct {
	log *slog.Logger

	mu   sync.Mutex
	last []string
}

// copy reads until the end of r.
func (p *logPipe) copy(r io.Reader) {
	br := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, tooLong, err := br.ReadLine()
		if len(line) > 0 {
			p.pass(line)
		}
		for tooLong && err == nil {
			_, tooLong, err = br.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

func (p *logPipe) pass(line []byte) {
	level, msg, attrs := parseLine(line)
	if level >= slog.LevelError || (level == slog.LevelInfo && attrs == nil && msg == string(line)) {
		p.remember(msg, attrs)
	}
	p.log.LogAttrs(context.Background(), level, msg, attrs...)
}

func (p *logPipe) remember(msg string, attrs []slog.Attr) {
	for _, a := range attrs {
		if a.Key == "error" {
			msg += ": " + a.Value.String()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = append(p.last, msg)
	if len(p.last) > lastLogKept {
		p.last = p.last[1:]
	}
}

func (p *logPipe) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.last)
}

// Shims write in logrus's text format whatever containerd's is.
var textLine = regexp.MustCompile(`^time=(?:"[^"]*"|\S+) level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)(.*)$`)

// parseLine understands containerd's JSON lines and its shims' text lines. Anything
// else, such as a panic's trace, is passed as it is.
func parseLine(line []byte) (slog.Level, string, []slog.Attr) {
	if msg, level, attrs, err := parseJSON(line); err == nil {
		return level, msg, attrs
	}
	m := textLine.FindSubmatch(line)
	if m == nil {
		return slog.LevelInfo, string(line), nil
	}
	msg := string(m[2])
	if unquoted, err := strconv.Unquote(msg); err == nil {
		msg = unquoted
	}
	attrs := []slog.Attr{slog.String("from", "shim")}
	if len(m[3]) > 0 {
		attrs = append(attrs, slog.String("fields", string(m[3][1:])))
	}
	return parseLevel(string(m[1])), msg, attrs
}

// What containerd says at every start, some fifty lines, when all is well.
var routine = []string{"loading plugin", "skip loading plugin", "failed check for fsverity support"}

func parseJSON(line []byte) (string, slog.Level, []slog.Attr, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return "", 0, nil, err
	}
	msg, ok := fields["msg"].(string)
	if !ok {
		return "", 0, nil, errors.New("no message")
	}
	text, _ := fields["level"].(string)
	level := parseLevel(text)
	if slices.Contains(routine, msg) {
		level = slog.LevelDebug
	}
	var attrs []slog.Attr
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		switch k {
		case "msg", "level", "time":
		default:
			attrs = append(attrs, slog.Any(k, fields[k]))
		}
	}
	return msg, level, attrs, nil
}

func parseLevel(s string) slog.Level {
	switch s {
	case "trace", "debug":
		return slog.LevelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal", "panic":
		return slog.LevelError
	}
	return slog.LevelInfo
}
