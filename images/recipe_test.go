package images_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proctor/images"
)

const goodRecipe = `name: tool
description: a tool
suite: bookworm
packages: [dash]
interpreters:
  sh: [/bin/sh]
`

func TestBuiltinRecipes(t *testing.T) {
	names, err := images.Recipes{}.Names()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"python-data", "shell"} {
		if !slices.Contains(names, want) {
			t.Errorf("no recipe %s among %v", want, names)
		}
	}
	for _, n := range names {
		if _, err := (images.Recipes{}).Load(n); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
	if _, err := (images.Recipes{Dir: "testdata"}).Load("python-test"); err != nil {
		t.Error(err)
	}
}

func TestRecipeDirectoryComesFirst(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(goodRecipe, "name: tool", "name: shell", 1)
	if err := os.WriteFile(filepath.Join(dir, "shell.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rs := images.Recipes{Dir: dir}
	r, err := rs.Load("shell")
	if err != nil {
		t.Fatal(err)
	}
	if r.Description != "a tool" || r.Variant != "essential" {
		t.Errorf("got %+v", r)
	}
	if _, err := rs.Load("python-data"); err != nil {
		t.Errorf("built-in recipe hidden by the directory: %v", err)
	}
	_, err = rs.Load("nonesuch")
	wantError(t, err, `no recipe "nonesuch"`, "python-data, ", "shell", "nonesuch.yaml")
	_, err = images.Recipes{Dir: filepath.Join(dir, "missing")}.Names()
	wantError(t, err, "missing")
}

func TestRecipeRefused(t *testing.T) {
	with := func(lines string) string { return goodRecipe + lines }
	swap := func(old, new string) string { return strings.Replace(goodRecipe, old, new, 1) }
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"empty":              {"", []string{"tool.yaml: is empty"}},
		"not a mapping":      {"- a\n", []string{"tool.yaml:1"}},
		"syntax":             {"name: [\n", []string{"tool.yaml:1"}},
		"unknown key":        {with("colour: red\n"), []string{"tool.yaml:7", "colour", "check its spelling"}},
		"unknown inner key":  {with("setup:\n  - name: x\n    runs: [/bin/true]\n"), []string{"tool.yaml:9", "runs"}},
		"key twice":          {with("suite: trixie\n"), []string{"tool.yaml:7", "suite", "keep one"}},
		"two documents":      {with("---\nname: b\n"), []string{"more than one document"}},
		"nul":                {with("# \x00\n"), []string{"tool.yaml:7", "NUL"}},
		"wrong type":         {swap("[dash]", "{a: b}"), []string{"tool.yaml:4"}},
		"no name":            {swap("name: tool\n", ""), []string{"name", "empty"}},
		"name not the file":  {swap("name: tool", "name: other"), []string{"tool.yaml:1", `"other"`, `"tool.yaml"`}},
		"bad name":           {swap("name: tool", "name: Tool!"), []string{"tool.yaml:1", `"Tool!"`}},
		"no description":     {swap("a tool", `""`), []string{"tool.yaml:2", "description"}},
		"bad suite":          {swap("bookworm", "../x"), []string{"tool.yaml:3", "suite", "bookworm"}},
		"bad variant":        {with("variant: huge\n"), []string{"tool.yaml:7", `"huge"`, "essential, apt"}},
		"no packages":        {swap("[dash]", "[]"), []string{"tool.yaml:4", "at least one"}},
		"option as package":  {swap("[dash]", "[dash, --foo]"), []string{"tool.yaml:4", `"--foo"`}},
		"package with comma": {swap("[dash]", `["dash,bash"]`), []string{`"dash,bash"`}},
		"package twice":      {swap("[dash]", "[dash, dash]"), []string{"twice"}},
		"without also in":    {with("without: [dash]\n"), []string{"tool.yaml:7", "also in packages"}},
		"env name":           {with("env: {A-B: x}\n"), []string{"tool.yaml:7", `"A-B"`}},
		"no interpreters":    {swap("\n  sh: [/bin/sh]", " {}"), []string{"interpreters", "at least one"}},
		"relative program":   {swap("/bin/sh", "sh"), []string{"tool.yaml:6", "absolute path"}},
		"no program":         {swap("[/bin/sh]", "[]"), []string{"tool.yaml:6", "absolute path"}},
		"language":           {swap("sh:", "S H:"), []string{"S H"}},
		"file path":          {with("files: {/etc/../x: y}\n"), []string{"/etc/../x"}},
		"setup without name": {with("setup: [{run: [/bin/true]}]\n"), []string{"setup[0].name"}},
		"setup program":      {with("setup: [{name: x, run: ['true']}]\n"), []string{"setup[0].run"}},
		"remove everything":  {with("remove: ['/**']\n"), []string{"tool.yaml:7", "top-level"}},
		"remove relative":    {with("remove: [usr/lib]\n"), []string{"tool.yaml:7", "absolute"}},
		"remove pattern":     {with("remove: ['/usr/[']\n"), []string{"tool.yaml:7", "/usr/["}},
		"parser panics":      {swap("[dash]", "!"), []string{"tool.yaml", "is not YAML that can be read"}},
		"too large":          {with("# " + strings.Repeat("x", 5<<20)), []string{"over the limit"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := images.ParseRecipe("tool.yaml", []byte(tc.text))
			if err == nil {
				t.Fatalf("accepted: %+v", r)
			}
			wantError(t, err, tc.want...)
		})
	}
	if _, err := images.ParseRecipe("some/tool.yaml", []byte(goodRecipe)); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// wantError checks that an error is one line and holds all the parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("error has several lines: %q", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not mention %q", err, p)
		}
	}
}
