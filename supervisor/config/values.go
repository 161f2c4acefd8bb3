package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"proctor/supervisor"
)

// Duration is written as Go does, such as 90s or 1h30m.
type Duration time.Duration

// Size is a number of bytes, written as docker does, such as 512M or 2G (powers of 1024).
type Size int64

// Count is a whole number of things.
type Count int64

// CPUs is a number of processors, or a part of one.
type CPUs float64

// UnmarshalYAML implements yaml.NodeUnmarshaler, as do those below.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	v, err := time.ParseDuration(text(n))
	if err != nil || v <= 0 {
		return refuse(n, "write a positive duration such as 30s or 5m")
	}
	*d = Duration(v)
	return nil
}

func (s *Size) UnmarshalYAML(n ast.Node) error {
	v, err := units.RAMInBytes(text(n))
	// Past 2^53 the library's floating point is no longer exact, and no machine has it.
	if err != nil || v <= 0 || v > 1<<53 {
		return refuse(n, "write a positive size such as 512M or 2G")
	}
	*s = Size(v)
	return nil
}

func (c *Count) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseInt(text(n), 10, 64)
	if err != nil || v <= 0 {
		return refuse(n, "write a positive whole number")
	}
	*c = Count(v)
	return nil
}

// LossPolicy is written as the supervisor's is.
type LossPolicy supervisor.LossPolicy

func (p *LossPolicy) UnmarshalYAML(n ast.Node) error {
	switch v := supervisor.LossPolicy(text(n)); v {
	case supervisor.KillOnLoss, supervisor.MarkOnLoss:
		*p = LossPolicy(v)
		return nil
	}
	return refuse(n, "write kill or mark")
}

func (c *CPUs) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseFloat(text(n), 64)
	// A ceiling that is no number would hold nothing back.
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return refuse(n, "write a positive number such as 2 or 0.5")
	}
	*c = CPUs(v)
	return nil
}

// text is a value as it was written, without quotes and comments.
func text(n ast.Node) string {
	if n, ok := n.(ast.ScalarNode); ok {
		return n.GetToken().Value
	}
	return ""
}

// refuse is an error that shows the line.
func refuse(n ast.Node, fix string) error {
	return &yaml.SyntaxError{Message: fmt.Sprintf("%.40q: %s", n.String(), fix), Token: n.GetToken()}
}
