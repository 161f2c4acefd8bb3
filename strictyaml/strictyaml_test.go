package strictyaml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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

type values struct {
	Idle  Duration `yaml:"idle"`
	Bytes Size     `yaml:"bytes"`
	Count Count    `yaml:"count"`
	Text  Text     `yaml:"text"`
	List  []Text   `yaml:"list"`
	On    bool     `yaml:"on"`

	More map[string]values `yaml:"more"`
}

func TestValues(t *testing.T) {
	var v values
	content := "idle: &long 1h30m\nbytes: 100MiB # a comment\ncount: 7\ntext: |\n  two\n  lines\nlist: [a, \"b c\", 'd', 5, *long]\n"
	if err := Decode("v.yaml", []byte(content), &v); err != nil {
		t.Fatal(err)
	}
	if time.Duration(v.Idle) != 90*time.Minute || v.Bytes != 100<<20 || v.Count != 7 || v.Text != "two\nlines\n" ||
		!slices.Equal(v.List, []Text{"a", "b c", "d", "5", "1h30m"}) {
		t.Errorf("read %+v", v)
	}
}

func TestValuesRefuse(t *testing.T) {
	for content, says := range map[string]string{
		"\nidle: 5\n":                        `v.yaml:2: idle: "5": write a positive duration`,
		"idle: -5m\n":                        `v.yaml:1: idle: "-5m": write a positive duration`,
		"bytes: 0\n":                         `v.yaml:1: bytes: "0": write a positive size`,
		"bytes: 1e400\n":                     `v.yaml:1: bytes: "1e400": write a positive size`,
		"count: 1.5\n":                       `v.yaml:1: count: "1.5": write a positive whole number`,
		"text: \"\"\n":                       `v.yaml:1: text: "\"\"": write a text that is not empty`,
		"text: ' '\n":                        `v.yaml:1: text: "' '": write a text that is not empty`,
		"text: [a]\n":                        `v.yaml:1: text: "[a]": write a text`,
		"text: {a: b}\n":                     `v.yaml:1: text: "{a: b}": write a text`,
		"list:\n- a\n- \"\"\n":               `v.yaml:3: list[1]: "\"\"": write a text`,
		"list: a\n":                          `v.yaml:1: list: string was used where sequence is expected: write a list, such as [a, b]`,
		"list: {a: b}\n":                     `v.yaml:1: list: mapping was used where sequence is expected: write a list, such as [a, b]`,
		"on: 5\n":                            `v.yaml:1: on: "5": a number stands where true or false belongs`,
		"more: {a.b: {count: 0}}\n":          `v.yaml:1: more.'a.b'.count: "0": write`,
		"more:\n  a:\n    on: perhaps\n":     `v.yaml:3: more.a.on: "perhaps": a text stands where true or false belongs`,
		"more:\n  a:\n    on:\n      b: c\n": `v.yaml:4: more.a.on: a mapping of keys to values stands where true or false belongs`,
		"more: {a: 5}\n":                     `v.yaml:1: more.a: int was used where mapping is expected`,
		"more: {a: {lists: []}}\n":           `v.yaml:1: more.a: unknown field "lists"`,
		"on: true\nmore: {a: {list: [a, b, [c]]}}\n": `v.yaml:2: more.a.list[2]: "[c]": write a text`,
		"list: [&x a, *x, b, '']\n":                  `v.yaml:1: list[3]: "''": write a text`,
		"idle: 5 d\n":                                `v.yaml:1: idle: "5 d": write a positive duration such as 30s, 5m or 7d`,
		"- a\n":                                      `v.yaml:1: sequence was used where mapping is expected`,
		"text: !!binary 'AA='\n":                     `v.yaml:1: text: "!!binary 'AA='": write a text`,
	} {
		var v values
		err := Decode("v.yaml", []byte(content), &v)
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%q: %v, want %s", content, err, says)
		}
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"7d": 7 * day, "1d12h": day + 12*time.Hour, "0d5s": 5 * time.Second, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "10000d": 10000 * day} {
		if d, err := ParseDuration(text); d != want || err != nil {
			t.Errorf("%s: %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "+1d", "1d-2h", "1d+2h", "1h2d", "1dd", "1d2d", "1.5d", "1 d", "d5s", "99999999d", "65535d2550000h", "1d2"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, d)
		}
	}
}

func TestLocate(t *testing.T) {
	data := []byte("top: 1\negress:\n  allow:\n    - host: a\n    - host: b\n      ports:\n      - 1\n      - 2\n")
	for field, want := range map[string]string{
		"allow[1].ports[1]":  "f.yaml:8: egress.allow[1].ports[1]: is wrong",
		"allow[1].host":      "f.yaml:5: egress.allow[1].host: is wrong",
		"allow[0].protocol":  "f.yaml:4: egress.allow[0].protocol: is wrong",
		"limits.bytes":       "f.yaml:3: egress.limits.bytes: is wrong", // the mapping's first line
		"":                   "f.yaml:3: egress: is wrong",
		"allow[7].ports[70]": "f.yaml:4: egress.allow[7].ports[70]: is wrong",
	} {
		if err := Locate("f.yaml", data, "egress", BadField(field, "is wrong")); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if err := Locate("f.yaml", data, "", BadField("top", "is %s", "wrong")); err.Error() != "f.yaml:1: top: is wrong" {
		t.Error(err)
	}
	if err := Locate("f.yaml", data, "other", BadField("a", "is wrong")); err.Error() != "f.yaml: other.a: is wrong" {
		t.Error(err)
	}
	other := errors.New("another")
	if err := Locate("f.yaml", data, "", other); err.Error() != "f.yaml: another" || !errors.Is(err, other) {
		t.Error(err)
	}
}

func TestNull(t *testing.T) {
	for content, want := range map[string]string{
		"a:\nb: 1\n":                   "$.a 1",
		"a: 1\nb: {c: ~}\n":            "$.b.c 2",
		"a:\n- x\n-\n":                 "$.a[1] 3",
		"a: 1\nb:\n  # - x\n  # - y\n": "$.b 2",
		"a: null\n":                    "$.a 1",
		"a: [x, \"\"]\nb: \"null\"\n":  "",
		"a: {\n":                       "",
	} {
		got := ""
		if field, line, found := Null([]byte(content)); found {
			got = fmt.Sprint(field, " ", line)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
}
