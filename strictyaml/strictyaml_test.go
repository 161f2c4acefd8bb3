package strictyaml

import (
	"errors"
	"strings"
	"testing"
)

type recipe struct {
	Name     string            `yaml:"name"`
	Packages []string          `yaml:"packages"`
	Files    map[string]string `yaml:"files"`
}

func TestDecode(t *testing.T) {
	var r recipe
	if err := Decode("r.yaml", []byte("# a comment\nname: a\npackages: [b, c]\nfiles: {/x: y}\n"), &r); err != nil {
		t.Fatal(err)
	}
	if r.Name != "a" || len(r.Packages) != 2 || r.Files["/x"] != "y" {
		t.Errorf("read %+v", r)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"unknown key":     {"name: a\ntitle: b\n", `r.yaml:2: unknown field "title": check its spelling or remove it`},
		"key twice":       {"name: a\n\nname: b\n", "r.yaml:3: "},
		"no YAML":         {"name: {\n", "r.yaml:1: "},
		"wrong type":      {"name: a\npackages: b\n", "r.yaml:2: "},
		"second document": {"name: a\n---\nname: b\n", "r.yaml: holds more than one document"},
		"NUL":             {"name: a\nfiles: \x00\n", "r.yaml:2: holds a NUL byte"},
		"too large":       {strings.Repeat("#", maxBytes+1), "r.yaml: 4194305 bytes is over the limit"},
		// The library has panicked on these.
		"lone tag":     {"packages: !\n", "r.yaml"},
		"lone anchor":  {"name: &\n", "r.yaml"},
		"lone alias":   {"name: *\n", "r.yaml"},
		"merge of nil": {"<<: !\n", "r.yaml"},
	} {
		var r recipe
		err := Decode("r.yaml", []byte(test.content), &r)
		if err == nil {
			t.Errorf("%s: read as %+v", name, r)
			continue
		}
		if !strings.HasPrefix(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q, want %q", name, err, test.says)
		}
	}
}

func TestDecodeEmpty(t *testing.T) {
	for _, content := range []string{"", "\n", "# nothing\n"} {
		if err := Decode("r.yaml", []byte(content), &recipe{}); !errors.Is(err, ErrEmpty) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestLine(t *testing.T) {
	data := []byte("name: a\nfiles:\n  x: y\n")
	for field, want := range map[string]int{"$.name": 1, "$.files.x": 3, "$.none": 0, "$[": 0} {
		if got := Line(data, field); got != want {
			t.Errorf("%s is on line %d, want %d", field, got, want)
		}
	}
	if got := Line([]byte("a: !\n{"), "$.a"); got > 2 {
		t.Errorf("line %d of what is no YAML", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("name: a\npackages: [b]\n"))
	f.Add([]byte("packages: !\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r recipe
		err := Decode("r.yaml", data, &r)
		if err != nil && strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q is not one line", err)
		}
	})
}
