package config

import (
	"math"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"proctor/strictyaml"
	"proctor/supervisor"
)

// The values that other files of operators have, too.
type (
	Duration = strictyaml.Duration
	Size     = strictyaml.Size
	Count    = strictyaml.Count
)

// CPUs is a number of processors, or a part of one.
type CPUs float64

// LossPolicy is written as the supervisor's is.
type LossPolicy supervisor.LossPolicy

// UnmarshalYAML implements yaml.NodeUnmarshaler, as does that of CPUs.
func (p *LossPolicy) UnmarshalYAML(n ast.Node) error {
	switch v := supervisor.LossPolicy(strictyaml.Scalar(n)); v {
	case supervisor.KillOnLoss, supervisor.MarkOnLoss:
		*p = LossPolicy(v)
		return nil
	}
	return strictyaml.Refuse(n, "write kill or mark")
}

func (c *CPUs) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseFloat(strictyaml.Scalar(n), 64)
	// A ceiling that is no number would hold nothing back.
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return strictyaml.Refuse(n, "write a positive number such as 2 or 0.5")
	}
	*c = CPUs(v)
	return nil
}
