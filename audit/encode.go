package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendJSON appends e as one JSON object, without a newline: what [json.Marshal] makes of it
// but for HTML escapes, in about an eighth of the time. A flood of acts is written down as fast
// as the kernel tells them.
func (e *Event) AppendJSON(b []byte) ([]byte, error) {
	o := object{b: append(b, '{')}
	o.string("run", e.Run)
	o.uint("seq", e.Seq)
	o.time("time", e.Time)
	o.string("kind", string(e.Kind))
	if p := e.Process; p != nil {
		o.process(p)
	}
	if r := e.Repeat; r != nil {
		o.open("repeat")
		o.uint("of", r.Of)
		o.uint("count", r.Count)
		o.time("first", r.First)
		o.close()
	}
	switch {
	case e.Open != nil:
		o.opened(e.Open)
	case e.Exec != nil:
		o.exec(e.Exec)
	case e.Fork != nil:
		o.open("fork")
		o.uint("child", uint64(e.Fork.Child))
		o.uint("child_host", uint64(e.Fork.ChildHost))
		o.uint("start", e.Fork.Start)
		o.close()
	case e.Exit != nil:
		o.open("exit")
		o.int("code", int64(e.Exit.Code))
		o.optional("signal", e.Exit.Signal)
		o.flag("core", e.Exit.Core)
		o.close()
	case e.Net != nil:
		o.network(e.Net)
	case e.Change != nil:
		o.change(e.Change)
	case e.Refused != nil:
		o.refused(e.Refused)
	case e.Raced != nil:
		o.open("raced")
		o.uint("of", e.Raced.Of)
		o.close()
	}
	// The gateway's and the supervisor's own are few.
	for _, own := range []struct {
		name  string
		value any
		there bool
	}{
		{"query", e.Query, e.Query != nil}, {"flow", e.Flow, e.Flow != nil}, {"scrub", e.Scrub, e.Scrub != nil}, {"finding", e.Finding, e.Finding != nil},
		{"start", e.Start, e.Start != nil}, {"end", e.End, e.End != nil}, {"cut", e.Cut, e.Cut != nil}, {"gap", e.Gap, e.Gap != nil},
	} {
		if !own.there {
			continue
		}
		o.key(own.name)
		var err error
		if o.b, err = appendAny(o.b, own.value); err != nil {
			return b, err
		}
	}
	return append(o.b, '}'), nil
}

// appendAny appends what [json.Marshal] returns, without HTML escapes.
func appendAny(b []byte, v any) ([]byte, error) {
	buf := bytes.NewBuffer(b)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// object appends the members of a JSON object, as json.Marshal would.
type object struct{ b []byte }

func (o *object) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) open(name string) {
	o.key(name)
	o.b = append(o.b, '{')
}

func (o *object) close() { o.b = append(o.b, '}') }

func (o *object) uint(name string, v uint64) {
	o.key(name)
	o.b = strconv.AppendUint(o.b, v, 10)
}

func (o *object) int(name string, v int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) time(name string, t time.Time) {
	o.key(name)
	o.b = append(o.b, '"')
	o.b = t.AppendFormat(o.b, time.RFC3339Nano)
	o.b = append(o.b, '"')
}

func (o *object) flag(name string, v bool) {
	if v {
		o.key(name)
		o.b = append(o.b, "true"...)
	}
}

// string is for what this program chose itself: names of calls, errors, kinds.
func (o *object) string(name, v string) {
	o.key(name)
	o.b = appendString(o.b, v)
}

func (o *object) optional(name, v string) {
	if v != "" {
		o.string(name, v)
	}
}

func (o *object) text(name string, v Text) {
	o.key(name)
	o.b = appendText(o.b, v)
}

func (o *object) optionalText(name string, v Text) {
	if v != "" {
		o.text(name, v)
	}
}

func (o *object) texts(name string, list []Text) { addList(o, name, list, appendText) }

func (o *object) strings(name string, list []string) { addList(o, name, list, appendString) }

func addList[T any](o *object, name string, list []T, add func([]byte, T) []byte) {
	o.key(name)
	if list == nil {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = append(o.b, '[')
	for i, v := range list {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = add(o.b, v)
	}
	o.b = append(o.b, ']')
}

func (o *object) process(p *Process) {
	o.open("process")
	o.uint("pid", uint64(p.PID))
	o.uint("ppid", uint64(p.PPID))
	o.uint("host_pid", uint64(p.HostID))
	if p.Thread != 0 {
		o.uint("tid", uint64(p.Thread))
	}
	o.uint("start", p.Start)
	o.text("comm", p.Comm)
	o.optionalText("file", p.File)
	if len(p.Argv) > 0 {
		o.texts("argv", p.Argv)
	}
	o.close()
}

func (o *object) opened(v *Open) {
	o.open("open")
	o.text("path", v.Path)
	o.optionalText("dir", v.Dir)
	o.string("access", string(v.Access))
	if len(v.Flags) > 0 {
		o.strings("flags", v.Flags)
	}
	o.optional("errno", v.Errno)
	o.flag("unresolved", v.Unresolved)
	o.flag("truncated", v.Truncated)
	o.flag("deleted", v.Deleted)
	o.flag("raced", v.Raced)
	o.close()
}

func (o *object) exec(v *Exec) {
	o.open("exec")
	o.text("file", v.File)
	o.optionalText("script", v.Script)
	o.texts("argv", v.Argv)
	if v.ArgvBytes != 0 {
		o.uint("argv_truncated_bytes", uint64(v.ArgvBytes))
	}
	o.texts("env", v.Env)
	o.flag("env_truncated", v.EnvCut)
	o.optionalText("cwd", v.Dir)
	o.uint("uid", uint64(v.UID))
	o.uint("gid", uint64(v.GID))
	o.optional("errno", v.Errno)
	o.flag("truncated", v.Truncated)
	o.flag("deleted", v.Deleted)
	o.flag("raced", v.Raced)
	o.close()
}

func (o *object) network(v *Network) {
	o.open("net")
	o.string("protocol", v.Protocol)
	o.key("address")
	o.b = append(o.b, '"')
	if v.Address.IsValid() {
		o.b = v.Address.AppendTo(o.b)
	}
	o.b = append(o.b, '"')
	o.uint("port", uint64(v.Port))
	o.optionalText("name", v.Name)
	o.optionalText("dir", v.Dir)
	o.optionalText("host", v.Host)
	o.optional("decision", string(v.Decision))
	o.optional("rule", v.Rule)
	o.optional("errno", v.Errno)
	o.flag("mapped", v.Mapped)
	o.flag("raced", v.Raced)
	o.close()
}

func (o *object) change(v *Change) {
	o.open("change")
	o.string("act", string(v.Act))
	o.text("path", v.Path)
	o.optionalText("dir", v.Dir)
	o.optionalText("to", v.To)
	o.optionalText("to_dir", v.ToDir)
	o.optionalText("target", v.Target)
	o.optionalText("attribute", v.Attribute)
	o.optional("mode", v.Mode)
	o.optional("owner", v.Owner)
	if v.Length != nil {
		o.int("length", *v.Length)
	}
	o.flag("whiteout", v.Whiteout)
	o.optional("errno", v.Errno)
	o.flag("unresolved", v.Unresolved)
	o.flag("truncated", v.Truncated)
	o.flag("deleted", v.Deleted)
	o.flag("raced", v.Raced)
	o.close()
}

func (o *object) refused(v *Refused) {
	o.open("refused")
	o.string("call", v.Call)
	o.uint("number", uint64(v.Number))
	o.string("abi", v.ABI)
	o.strings("args", v.Args)
	o.optional("errno", v.Errno)
	o.optional("signal", v.Signal)
	if s := v.Socket; s != nil {
		o.open("socket")
		o.string("family", s.Family)
		o.string("type", s.Type)
		o.uint("protocol", uint64(s.Protocol))
		o.close()
	}
	o.close()
}

// plain are the bytes that stand for themselves in a JSON string and in a Text.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendString appends a string that is plain text; what is not goes the long way.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			b, _ = appendAny(b, s) // a string always can be
			return b
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendText appends what [Text.MarshalJSON] returns.
func appendText(b []byte, t Text) []byte {
	b = append(b, '"')
	s := string(t)
	for len(s) > 0 {
		n := 0
		for n < len(s) && plain[s[n]] {
			n++
		}
		b = append(b, s[:n]...)
		if s = s[n:]; s == "" {
			break
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\\x%02x`, s[0])
		case r == '\\':
			b = append(b, `\\\\`...)
		case r == '"':
			b = append(b, `\"`...)
		case unicode.IsPrint(r):
			b = append(b, s[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return append(b, '"')
}
