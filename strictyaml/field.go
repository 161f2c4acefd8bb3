package strictyaml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// FieldError is a mistake that was found after decoding, in the value of one field. It may be
// of a value that came from elsewhere than a file; [Locate] says where in a file it is.
type FieldError struct {
	Field string // as seen from what was checked, such as allow[0].host
	Msg   string // value, rule and fix
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Msg
	}
	return e.Field + ": " + e.Msg
}

// BadField makes a [FieldError].
func BadField(field, format string, args ...any) error {
	return &FieldError{Field: field, Msg: fmt.Sprintf(format, args...)}
}

// Locate says where in a file the mistake is: file:line, the line being that of the field or
// of the nearest one around it that the file has. at is the path of what was checked, such as
// egress, or empty for the whole file. Another error than a [FieldError] gets the file alone.
func Locate(file string, data []byte, at string, err error) error {
	var fe *FieldError
	if !errors.As(err, &fe) {
		return fmt.Errorf("%s: %w", file, err)
	}
	field := strings.Trim(at+"."+fe.Field, ".")
	located := &FieldError{Field: field, Msg: fe.Msg}
	for field != "" {
		if line := Line(data, "$."+field); line > 0 {
			return fmt.Errorf("%s:%d: %w", file, line, located)
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return fmt.Errorf("%s: %w", file, located)
}

// Null is the first key or list entry without a value, such as "$.egress.allow[0].ports", with
// its line. The decoder takes these as not there, which is not what a list means whose
// entries have all been commented out.
func Null(data []byte) (field string, line int, found bool) {
	var failed error
	defer recoverParser("", &failed) // nothing is found
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return "", 0, false
	}
	var first nullFinder
	for _, doc := range parsed.Docs {
		if doc.Body != nil {
			ast.Walk(&first, doc.Body)
		}
	}
	if first.node == nil {
		return "", 0, false
	}
	field = first.node.GetPath()
	if tk := first.node.GetToken(); tk != nil && tk.Position != nil {
		line = tk.Position.Line
	}
	return field, line, true
}

type nullFinder struct{ node *ast.NullNode }

func (f *nullFinder) Visit(n ast.Node) ast.Visitor {
	if null, ok := n.(*ast.NullNode); ok && f.node == nil {
		f.node = null
	}
	if f.node != nil {
		return nil
	}
	return f
}

// at is the key whose value begins at an offset, such as limits.default.pids, with that value if it
// is no list or mapping. Both are empty where that is not known.
func at(data []byte, offset int) (key, value string) {
	var failed error
	defer recoverParser("", &failed) // nothing is found
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return "", ""
	}
	found := offsetFinder{offset: offset}
	for _, doc := range parsed.Docs {
		if doc.Body != nil {
			ast.Walk(&found, doc.Body)
		}
	}
	if found.node == nil {
		return "", ""
	}
	return strings.Trim(strings.TrimPrefix(found.node.GetPath(), "$"), "."), Scalar(found.node)
}

// An offsetFinder keeps the outermost node: a mapping begins where its first key's value does.
type offsetFinder struct {
	offset int
	node   ast.Node
}

func (f *offsetFinder) Visit(n ast.Node) ast.Visitor {
	if f.node != nil {
		return nil
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil && tk.Position.Offset == f.offset {
		f.node = n
		return nil
	}
	return f
}
