// Package thresholds is how operators write down how many blocked attempts are too many, in
// proctor.yaml and in profiles.
package thresholds

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"proctor/alerts/spike"
	"proctor/strictyaml"
)

// Rules are for whole host's runs. What is left out is spike's default.
type Rules struct {
	Run         Rule `yaml:"run" json:"run"`
	Caller      Rule `yaml:"caller" json:"caller"`
	Agent       Rule `yaml:"agent" json:"agent"`
	Image       Rule `yaml:"image" json:"image"`
	Destination Rule `yaml:"destination" json:"destination"`
	Host        Rule `yaml:"host" json:"host"`
}

// Of a profile there is a rule for its runs alone: the other kinds are of all profiles.
type Of struct {
	Run Rule `yaml:"run" json:"run"`
}

// A Rule is one of spike's, of which what is zero is left out.
type Rule struct {
	Threshold strictyaml.Count    `yaml:"threshold" json:"threshold,omitempty"`
	Window    strictyaml.Duration `yaml:"window" json:"window,omitempty"`
	Factor    Factor              `yaml:"factor" json:"factor,omitempty"`
	History   strictyaml.Count    `yaml:"history" json:"history,omitempty"`
	Off       bool                `yaml:"off" json:"off,omitempty"`
}

// A Factor is of what is expected.
type Factor float64

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (f *Factor) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseFloat(strictyaml.Scalar(n), 64)
	if err != nil || !(v >= 1) || v > 1e6 {
		return strictyaml.Refuse(n, "write a number from 1 to 1000000, such as 3")
	}
	*f = Factor(v)
	return nil
}

// Over fills in what is left out.
func (r Rule) Over(base spike.Rule) spike.Rule {
	return spike.Rule{
		Threshold: cmp.Or(uint64(r.Threshold), base.Threshold), Window: cmp.Or(time.Duration(r.Window), base.Window),
		Factor: cmp.Or(float64(r.Factor), base.Factor), History: cmp.Or(int(r.History), base.History), Off: r.Off || base.Off,
	}
}

func (r Rules) all() map[spike.By]Rule {
	return map[spike.By]Rule{
		spike.ByRun: r.Run, spike.ByCaller: r.Caller, spike.ByAgent: r.Agent, spike.ByImage: r.Image, spike.ByDestination: r.Destination, spike.ByHost: r.Host,
	}
}

// Over fills in what is left out.
func (r Rules) Over(base spike.Rules) spike.Rules {
	rules := spike.Rules{}
	for by, rule := range r.all() {
		rules[by] = rule.Over(base[by])
	}
	return rules
}

// Check says what is wrong, by the field below alerts.
func (r Rules) Check() error {
	rules := r.all()
	for _, by := range slices.Sorted(maps.Keys(rules)) {
		if err := rules[by].check(by); err != nil {
			return err
		}
	}
	return nil
}

// Check is likewise.
func (o Of) Check() error { return o.Run.check(spike.ByRun) }

// check refuses also what would be of no effect.
func (r Rule) check(by spike.By) error {
	at := "alerts." + string(by)
	for _, key := range []struct {
		name      string
		set, past bool // past: of what a series did before
	}{{"threshold", r.Threshold != 0, false}, {"window", r.Window != 0, false}, {"factor", r.Factor != 0, true}, {"history", r.History != 0, true}} {
		switch {
		case key.set && r.Off:
			return strictyaml.BadField(at+".off", "true stands beside %s, which has no effect then: remove one of them", key.name)
		case key.set && key.past && by == spike.ByRun:
			return strictyaml.BadField(at+"."+key.name, "a run has no history that it could be about: remove it, threshold and window are all of this rule")
		}
	}
	if field, err := r.Over(spike.Defaults()[by]).Check(); err != nil {
		return strictyaml.BadField(at+"."+field, "%v", err)
	}
	return nil
}
