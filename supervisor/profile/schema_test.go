package profile

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"proctor/supervisor/limits"
	"proctor/supervisor/thresholds"
)

func schema(t *testing.T) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &s, r
}

// keys are those that a type is read from.
func keys(v any) (all []string) {
	for t := range reflect.TypeOf(v).Fields() {
		if name := t.Tag.Get("yaml"); name != "-" && name != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func properties(of map[string]*jsonschema.Schema) (all []string) {
	for name := range of {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// TestSchemaHasEveryKey finds a key that was added to one and not to the other.
func TestSchemaHasEveryKey(t *testing.T) {
	s, _ := schema(t)
	for what, pair := range map[string][2][]string{
		"profile": {keys(Profile{}), properties(s.Properties)},
		"limits":  {keys(limits.Set{}), properties(s.Defs["limits"].Properties)},
		"range":   {keys(limits.Range{}), properties(s.Properties["limits"].Properties)},
		"alerts":  {keys(thresholds.Of{}), properties(s.Properties["alerts"].Properties)},
		"rule":    {keys(thresholds.Rule{}), properties(s.Defs["threshold"].Properties)},
	} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s: read are %v, the schema has %v", what, pair[0], pair[1])
		}
	}
}

// TestSchemaAgrees has the schema and the reader judge the same files.
func TestSchemaAgrees(t *testing.T) {
	_, resolved := schema(t)
	judge := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		// As an editor has it: JSON's values.
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		return resolved.Validate(v)
	}
	examples, err := filepath.Glob("../../examples/profiles/*.yaml")
	if err != nil || len(examples) < 3 {
		t.Fatal(examples, err)
	}
	for _, file := range examples {
		data, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := judge(string(data)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if _, err := Load(file); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir()
	for _, c := range []struct {
		text string
		good bool
	}{
		{"description: a", true},
		{"description: a\nimages: [shell]\non_audit_loss: mark\nisolation: container", true},
		{"description: a\nlimits: {default: {timeout: 30s, memory: 256M, cpus: 0.5}, ceiling: {memory: 1GiB, pids: 64}}", true},
		{"description: a\ncallers: {users: [0, 12345], groups: [99]}", true},
		{"description: a\negress: {allow: [{host: a.example, ports: [80]}], limits: {idle: 1m, bytes_up: 10MiB}}", true},
		{"description: a\negress: {allow: [{host: a.example}], credentials: [{name: k, host: a.example, header: X-Key, source: {env: KEY}}]}", true},
		{"description: a\nalerts: {run: {threshold: 10, window: 30s}}", true},
		{"description: a\nalerts: {run: {off: true}}", true},
		{"{}", false},
		{"description: a\ncallers: {users: []}", false},
		{"description: a\ncallers: {}", false},
		{"description: a\ncallers: {users: [], groups: []}", false},
		{"description: a\nalerts: {run: {threshold: 0}}", false},
		{"description: a\nalerts: {run: {factor: 0.5}}", false},
		{"description: a\nalerts: {run: {factor: 3}}", false},
		{"description: a\nalerts: {run: {history: 3}}", false},
		{"description: a\nalerts: {run: {off: true}}", true},
		{"description: a\nalerts: {run: {off: false, threshold: 3}}", true},
		{"description: a\nalerts: {run: {off: true, threshold: 3}}", false},
		{"description: a\nalerts: {run: {history: 97}}", false},
		{"description: a\nalerts: {caller: {threshold: 1}}", false},
		{"description: ''", false},
		{"description: a\nname: b", false},
		{"description: a\nimages: shell", false},
		{"description: a\nimages: ['']", false},
		{"description: a\nlimits: {memory: 1G}", false},
		{"description: a\nlimits: {default: {memory: much}}", false},
		{"description: a\nlimits: {default: {timeout: 30}}", false},
		{"description: a\nlimits: {default: {pids: 0}}", false},
		{"description: a\nlimits: {default: {cpus: -1}}", false},
		{"description: a\nisolation: none", false},
		{"description: a\non_audit_loss: ignore", false},
		{"description: a\negress: {allow: [{host: a.example, cidr: 203.0.113.0/24}]}", false},
		{"description: a\negress: {allow: [{cidr: 203.0.113.0/24}]}", false},
		{"description: a\negress: {allow: [{host: a.example, ports: [0]}]}", false},
		{"description: a\negress: {allow: [{host: a.example}], credentials: [{name: k, host: a.example, source: {env: KEY}}]}", false},
		{"description: a\negress: {allow: [{host: a.example}], credentials: [{name: k, host: a.example, header: X, source: {}}]}", false},
	} {
		if err := judge(c.text); (err == nil) != c.good {
			t.Errorf("the schema on %q: %v", c.text, err)
		}
		if _, err := Load(write(t, dir, "p.yaml", c.text+"\n")); (err == nil) != c.good {
			t.Errorf("the reader on %q: %v", c.text, err)
		}
	}
	if strings.Contains(string(Schema), "\t") {
		t.Error("the schema has tabs")
	}
}
