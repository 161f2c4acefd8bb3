// Package strictyaml reads the YAML files that operators write: one document, no key that
// is not known, none twice. Every error is one line that begins with file:line.
//
// It also makes errors of the YAML library's panics, of which it has some on malformed
// input, so it is the only place that decodes YAML.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxBytes bounds what is parsed: an image lock with dozens of images of a thousand packages each fits.
const maxBytes = 4 << 20

// ErrEmpty is a file with nothing in it.
var ErrEmpty = errors.New("is empty")

// Decode reads exactly one document into a pointer. file is used in errors. A file without
// one is [ErrEmpty].
func Decode(file string, data []byte, into any) (err error) {
	defer recoverParser(file, &err)
	if len(data) > maxBytes {
		return fmt.Errorf("%s: %d bytes is over the limit of %d", file, len(data), maxBytes)
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("%s:%d: holds a NUL byte: write plain text", file, 1+bytes.Count(data[:i], []byte("\n")))
	}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.DisallowUnknownField())
	if err := dec.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", file, ErrEmpty)
		}
		return located(file, data, err)
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf(`%s: holds more than one document: remove what follows the second "---"`, file)
	}
	return nil
}

// located turns a decoder's error, which shows an excerpt of the file, into one line that starts
// with file:line and the key, as far as these are known.
func located(file string, data []byte, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return fmt.Errorf("%s: %s", file, oneLine(err.Error()))
	}
	where, fix, key, value := file, "", "", ""
	if tk := ye.GetToken(); tk != nil && tk.Position != nil {
		where = fmt.Sprintf("%s:%d", file, tk.Position.Line)
		key, value = at(data, tk.Position.Offset)
	}
	msg := oneLine(ye.GetMessage())
	var (
		unknown *yaml.UnknownFieldError
		kind    *yaml.TypeError
		shape   *yaml.UnexpectedNodeTypeError
	)
	switch {
	case errors.As(err, &kind) && kind.SrcType != nil && kind.DstType != nil:
		// The library's own words are about Go's types.
		msg = fmt.Sprintf("%s stands where %s belongs", kindName(kind.SrcType), kindName(kind.DstType))
		if value != "" {
			msg = fmt.Sprintf("%.60q: %s", value, msg)
		}
	case errors.As(err, &shape) && shape.Expected == ast.SequenceType:
		fix = ": write a list, such as [a, b]"
	case errors.As(err, &unknown):
		fix = ": check its spelling or remove it"
		key = key[:max(strings.LastIndex(key, "."), 0)] // the message has its own
	case strings.Contains(msg, "already defined"): // the parser has no type of its own for this
		fix = ": keep one of them"
	}
	if key != "" {
		where += ": " + key
	}
	return fmt.Errorf("%s: %s%s", where, msg, fix)
}

// kindName is what people call a value that is read into a type.
func kindName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping of keys to values"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	default:
		return "a number"
	}
}

// recoverParser makes an error of a panic: the YAML library has some on malformed input, such as nil dereferences.
func recoverParser(file string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: is not YAML that can be read: %s", file, oneLine(fmt.Sprint(p)))
	}
}

// Line is the line of a field, such as "$.images.shell", or 0 if the file doesn't have it.
func Line(data []byte, field string) (line int) {
	var failed error
	defer recoverParser("", &failed) // the line stays 0
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return 0
	}
	p, err := yaml.PathString(field)
	if err != nil {
		return 0
	}
	node, err := p.FilterFile(parsed)
	if err != nil || node == nil || node.GetToken() == nil {
		return 0
	}
	return node.GetToken().Position.Line
}

func oneLine(s string) string {
	return clipLine(strings.Join(strings.Fields(s), " "))
}

func clipLine(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
