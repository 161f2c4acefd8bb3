package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"proctor/audit"
)

// printable makes a name that the code chose safe to show, so that it can be read back.
func printable(s string) string { return audit.Text(s).Printable() }

// oneLine makes a message safe to show. Unlike printable it leaves backslashes alone: what
// the message quotes has them already.
func oneLine(s string) string {
	parts := strings.Split(s, `\`)
	for i := range parts {
		parts[i] = printable(parts[i])
	}
	return strings.Join(parts, `\`)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// programOutput is where a program's stream goes. On a terminal, what could move the cursor
// or reprogram it is shown instead of obeyed; elsewhere the bytes are the program's own.
func programOutput(f *os.File) io.Writer {
	if isTerminal(f) {
		return &terminalWriter{w: f}
	}
	return f
}

// terminalWriter escapes everything but printable characters, newlines and tabs. A
// character may be split between writes.
type terminalWriter struct {
	w    io.Writer
	rest []byte
}

func (t *terminalWriter) Write(p []byte) (int, error) {
	data := append(t.rest, p...)
	var out []byte
	for len(data) > 0 {
		if !utf8.FullRune(data) {
			break
		}
		_, n := utf8.DecodeRune(data)
		switch c := data[:n]; {
		case n == 1 && (c[0] == '\n' || c[0] == '\t'):
			out = append(out, c...)
		case n == 1 && c[0] == '\\':
			out = append(out, c...) // the program's own; only what is unsafe is escaped here
		default:
			out = append(out, printable(string(c))...)
		}
		data = data[n:]
	}
	t.rest = append(t.rest[:0:0], data...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
