// Package limits is how operators write the limits of runs down, in proctor.yaml and in profiles.
package limits

import (
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml/ast"

	"proctor/strictyaml"
	"proctor/supervisor/box"
)

// A Range is what a run gets by default, and at most.
type Range struct {
	Default Set `yaml:"default" json:"default"`
	Ceiling Set `yaml:"ceiling" json:"ceiling"`
}

// A Set is a set of limits. What is left out is zero, and somebody else's to say.
type Set struct {
	Timeout       strictyaml.Duration `yaml:"timeout"`
	Grace         strictyaml.Duration `yaml:"grace"`
	Memory        strictyaml.Size     `yaml:"memory"`
	CPUs          CPUs                `yaml:"cpus"`
	CPUTime       strictyaml.Duration `yaml:"cpu_time"`
	PIDs          strictyaml.Count    `yaml:"pids"`
	Scratch       strictyaml.Size     `yaml:"scratch"`
	ScratchInodes strictyaml.Count    `yaml:"scratch_inodes"`
	Output        strictyaml.Size     `yaml:"output"`
	OpenFiles     strictyaml.Count    `yaml:"open_files"`
	AuditEvents   strictyaml.Count    `yaml:"audit_events"`
}

// Check reports a default that is above the ceiling beside it, or that no box works with.
func (r Range) Check() error {
	ceiling := r.Ceiling.values()
	for i, d := range r.Default.values() {
		if c := ceiling[i]; c.number > 0 && d.number > c.number {
			return strictyaml.BadField("limits.default."+d.name, "%s is more than limits.ceiling.%s, which is %s: lower the one or raise the other", d.text, c.name, c.text)
		}
	}
	def, most := Builtin()
	for name, l := range map[string]box.Limits{"default": r.Default.Box().Or(def), "ceiling": r.Ceiling.Box().Or(most)} {
		if err := l.Validate(); err != nil {
			return strictyaml.BadField("limits."+name, "%v", err)
		}
	}
	return nil
}

// Texts is what is said, by key, as it may be written.
func (s Set) Texts() map[string]string {
	texts := map[string]string{}
	for _, v := range s.values() {
		if v.number > 0 {
			texts[v.name] = v.text
		}
	}
	return texts
}

type value struct {
	name   string
	number float64
	text   string
}

func (s Set) values() []value {
	count := func(name string, n strictyaml.Count) value {
		return value{name, float64(n), strconv.FormatInt(int64(n), 10)}
	}
	size := func(name string, n strictyaml.Size) value {
		return value{name, float64(n), units.BytesSize(float64(n))}
	}
	return []value{
		{"timeout", float64(s.Timeout), time.Duration(s.Timeout).String()}, {"grace", float64(s.Grace), time.Duration(s.Grace).String()}, {"cpu_time", float64(s.CPUTime), time.Duration(s.CPUTime).String()}, size("memory", s.Memory),
		{"cpus", float64(s.CPUs), strconv.FormatFloat(float64(s.CPUs), 'g', -1, 64)}, count("pids", s.PIDs), size("scratch", s.Scratch),
		count("scratch_inodes", s.ScratchInodes), size("output", s.Output), count("open_files", s.OpenFiles), count("audit_events", s.AuditEvents),
	}
}

// A LossPolicy says what becomes of a run when its record can't be complete: an event was lost
// or may name the wrong file, or the record has as many as the run's limit.
type LossPolicy string

const (
	KillOnLoss LossPolicy = "kill" // it is ended, with the status audit_limit
	MarkOnLoss LossPolicy = "mark" // it goes on, and the record says what is missing
)

// UnmarshalYAML implements yaml.NodeUnmarshaler, as does that of CPUs.
func (p *LossPolicy) UnmarshalYAML(n ast.Node) error {
	switch v := LossPolicy(strictyaml.Scalar(n)); v {
	case KillOnLoss, MarkOnLoss:
		*p = v
		return nil
	}
	return strictyaml.Refuse(n, "write kill or mark")
}

// CPUs is a number of processors, or a part of one.
type CPUs float64

func (c *CPUs) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseFloat(strictyaml.Scalar(n), 64)
	// A ceiling that is no number would hold nothing back.
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return strictyaml.Refuse(n, "write a positive number such as 2 or 0.5")
	}
	*c = CPUs(v)
	return nil
}

// Box is the limits as boxes take them.
func (s Set) Box() box.Limits {
	return box.Limits{
		Timeout: time.Duration(s.Timeout), Grace: time.Duration(s.Grace), Memory: int64(s.Memory), CPUs: float64(s.CPUs), CPUTime: time.Duration(s.CPUTime), Processes: int64(s.PIDs),
		ScratchBytes: int64(s.Scratch), ScratchInodes: int64(s.ScratchInodes), OutputBytes: int64(s.Output), OpenFiles: int64(s.OpenFiles),
		AuditEvents: int64(s.AuditEvents),
	}
}

// Builtin is what holds where nobody says anything.
func Builtin() (def, ceiling box.Limits) {
	def = box.Limits{
		Timeout: time.Minute, Memory: 1 << 30, CPUs: 1, CPUTime: time.Hour, Processes: 256,
		ScratchBytes: 512 << 20, ScratchInodes: 65_536, OutputBytes: 1 << 20, OpenFiles: 4096,
		AuditEvents: 250_000,
	}
	ceiling = box.Limits{
		Timeout: time.Hour, Grace: 30 * time.Second, Memory: 16 << 30, CPUs: float64(runtime.NumCPU()), CPUTime: 24 * time.Hour, Processes: 4096,
		ScratchBytes: 8 << 30, ScratchInodes: 1 << 20, OutputBytes: 64 << 20, OpenFiles: 65_536,
		AuditEvents: 10_000_000,
	}
	return def, ceiling
}
