package profile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const good = "description: one API\negress:\n  allow:\n    - host: API.example.com\n"

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	p, err := Load(write(t, dir, "one-api.v2.yaml", good))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "one-api.v2" || p.Description != "one API" || !p.Egress.Host("api.example.com", 443).Allowed {
		t.Errorf("%+v", p)
	}
	// Without egress nothing is granted.
	p, err = Load(write(t, dir, "none.yaml", "description: nothing\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Egress.Host("api.example.com", 443); d.Allowed || p.Egress.Limits.Queries != 10_000 {
		t.Errorf("%+v", p)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ name, content, says string }{
		{"p.yaml", "", ": is empty"},
		{"p.yaml", "# nothing\n", ": is empty"},
		{"p.yaml", "---\n", ": is empty"},
		{"p.yaml", "egress: {}\n", ": description: is missing: say in one line"},
		{"p.yaml", "description: |\n  two\n  lines\n", ":1: description: has more than one line"},
		{"p.yaml", "description: a\nname: b\n", `:2: unknown field "name"`},
		{"p.yaml", "description: a\nnetwork: {}\n", `:2: unknown field "network"`},
		{"p.yaml", "description: a\negress:\n", ":2: egress has no value: write one, or remove the key"},
		{"p.yaml", "description: a\negress:\n  allow:\n    # - host: a.example\n", ":3: egress.allow has no value"},
		{"p.yaml", "description: a\negress:\n  allow:\n    - host: a.example\n      ports:\n", ":5: egress.allow[0].ports has no value"},
		{"p.yaml", "description: a\negress:\n  allow:\n    - host: a.example\n    -\n", ":5: egress.allow[1] has no value"},
		{"p.yaml", good + "    - host: a*.example.com\n", `:5: egress.allow[1].host: "a*.example.com" has * elsewhere`},
		{"p.yaml", good + "egress: {}\n", ":5: "},
		{"p.yaml", good + "---\n" + good, ": holds more than one document"},
		{"p.yaml", "# " + strings.Repeat("x", maxBytes), ": has more than 1048576 bytes"},
		{"offline.yaml", good, ":4: egress.allow: is not empty, and the profile offline grants nothing"},
		{"p.yml", good, `: "p.yml" is no name of a profile's file: write NAME.yaml`},
		{"Caps.yaml", good, `: "Caps.yaml" is no name`},
		{".yaml", good, `: ".yaml" is no name`},
		{"-x.yaml", good, `: "-x.yaml" is no name`},
		{"a b.yaml", good, `: "a b.yaml" is no name`},
		{strings.Repeat("a", 65) + ".yaml", good, `: "`},
	} {
		file := write(t, dir, test.name, test.content)
		p, err := Load(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+test.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %.80q: %+v, %v\nwant %s", test.name, test.content, p, err, test.says)
		}
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	fifo := filepath.Join(dir, "fifo.yaml")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{fifo, mkdir(t, dir, "dir.yaml")} {
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func mkdir(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func names(list []*Profile) string {
	var all []string
	for _, p := range list {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func TestLoadDir(t *testing.T) {
	dir := t.TempDir()
	list, err := LoadDir(dir)
	if err != nil || names(list) != "offline" || list[0].Egress.Granted("a.example").Allowed {
		t.Fatalf("of nothing: %s, %v", names(list), err)
	}
	write(t, dir, "b.yaml", good)
	write(t, dir, "z.yaml", good)
	write(t, dir, "README.md", "not a profile")
	write(t, dir, ".hidden.yaml", "not a profile")
	write(t, dir, "b.yaml~", "not a profile")
	mkdir(t, dir, "old")
	if err := os.Symlink("b.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if list, err = LoadDir(dir); err != nil || names(list) != "a b offline z" {
		t.Errorf("%s, %v", names(list), err)
	}
	file := write(t, dir, "offline.yaml", "description: ours\n")
	if list, err = LoadDir(dir); err != nil || list[2].Description != "ours" {
		t.Errorf("%s, %v", names(list), err)
	}
	os.Remove(file)

	bad := write(t, dir, "bad.yaml", "description: a\negres: {}\n")
	if list, err = LoadDir(dir); err == nil || !strings.HasPrefix(err.Error(), bad+":2: ") {
		t.Errorf("%s, %v", names(list), err)
	}
	other := write(t, dir, "other.yml", good)
	if list, err = LoadDir(dir); err == nil || !strings.Contains(err.Error(), bad+":2: ") || !strings.Contains(err.Error(), "\n"+other+": profiles end in .yaml") || names(list) != "a b offline z" {
		t.Errorf("%s, %v", names(list), err)
	}
	write(t, dir, "offline.yaml", "egres: {}\n")
	if list, err = LoadDir(dir); err == nil || names(list) != "a b z" {
		t.Errorf("%s, %v", names(list), err)
	}
	if _, err = LoadDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", good)
	if p, err := Find(dir, "a"); err != nil || p.Name != "a" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, dir := range []string{dir, filepath.Join(dir, "none")} {
		if p, err := Find(dir, "offline"); err != nil || p.Name != "offline" || len(p.Egress.Allow) > 0 {
			t.Errorf("%+v, %v", p, err)
		}
		if p, err := Find(dir, "b"); err == nil || !strings.Contains(err.Error(), `no profile "b" in `+dir) {
			t.Errorf("%+v, %v", p, err)
		}
	}
	for _, name := range []string{"", "../a", "a/../a", "A", "a.yaml/x", "\n"} {
		if p, err := Find(dir, name); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
	}
}

// What is shipped as an example is taken, and says what it means to.
func TestExamples(t *testing.T) {
	list, err := LoadDir("../../examples/profiles")
	if err != nil {
		t.Fatal(err)
	}
	if names(list) != "api-client data-analysis offline" {
		t.Fatal(names(list))
	}
	api := list[0].Egress
	if !api.Host("api.example.com", 443).Allowed || !api.Granted("a.files.example.com").Allowed || len(api.Prefixes()) != 1 {
		t.Errorf("%+v", api)
	}
	if c := api.Credential("api.example.com"); c == nil || c.Source.File != "/etc/proctor/secrets/example-api" {
		t.Errorf("%+v", c)
	}
	for _, p := range list[1:] {
		if len(p.Egress.Allow) > 0 {
			t.Errorf("%s grants %v", p.Name, p.Egress.Allow)
		}
	}
}
