package strictyaml

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Duration is written as [ParseDuration] takes it.
type Duration time.Duration

// Size is a number of bytes, written as docker does, such as 512M, 100MiB or 2G (powers of 1024).
type Size int64

// Count is a whole number of things.
type Count int64

// Text is a text that is not empty: "" comes most often from a template's variable that is not set.
type Text string

// UnmarshalYAML implements yaml.NodeUnmarshaler, as do those below.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	v, err := ParseDuration(Scalar(n))
	if err != nil || v <= 0 {
		return Refuse(n, "write a positive duration such as 30s, 5m or 7d")
	}
	*d = Duration(v)
	return nil
}

// ParseDuration takes what Go does, such as 90s or 1h30m, with days of 24 hours before it: 7d, 1d12h.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d := time.Duration(n) * 24 * time.Hour
	if err == nil && rest != "" {
		var more time.Duration
		if more, err = time.ParseDuration(rest); err == nil && (more < 0 || rest[0] == '+') {
			err = strconv.ErrSyntax
		}
		d += more
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration: write one such as 30s, 5m or 7d", s)
	}
	return d, nil
}

func (s *Size) UnmarshalYAML(n ast.Node) error {
	v, err := units.RAMInBytes(Scalar(n))
	// Past 2^53 the library's floating point is no longer exact, and no machine has it.
	if err != nil || v <= 0 || v > 1<<53 {
		return Refuse(n, "write a positive size such as 512M or 2G")
	}
	*s = Size(v)
	return nil
}

func (c *Count) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseInt(Scalar(n), 10, 64)
	if err != nil || v <= 0 {
		return Refuse(n, "write a positive whole number")
	}
	*c = Count(v)
	return nil
}

func (t *Text) UnmarshalYAML(n ast.Node) error {
	v := ""
	switch n := n.(type) {
	case *ast.StringNode:
		v = n.Value
	case *ast.LiteralNode: // | and >
		v = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v = Scalar(n) // what YAML takes for a number is a text here
	}
	if strings.TrimSpace(v) == "" {
		return Refuse(n, "write a text that is not empty, or leave the key out")
	}
	*t = Text(v)
	return nil
}

// Scalar is a value as it was written, without quotes and comments; empty for what is no scalar.
func Scalar(n ast.Node) string {
	if n, ok := n.(ast.ScalarNode); ok {
		return n.GetToken().Value
	}
	return ""
}

// Refuse is an error of a value's UnmarshalYAML that shows the value, the rule with the fix,
// and in the end the line.
func Refuse(n ast.Node, fix string) error {
	return &yaml.SyntaxError{Message: fmt.Sprintf("%.60q: %s", n.String(), fix), Token: n.GetToken()}
}
