// Package profile reads what operators grant to runs: a profile is a file NAME.yaml, read
// strictly. It also reads the secrets that a profile's credentials are made of.
package profile

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"proctor/netpolicy/egress"
	"proctor/strictyaml"
	"proctor/supervisor/access"
	"proctor/supervisor/limits"
	"proctor/supervisor/thresholds"
)

// DefaultDir is where profiles are looked for when no other place is named.
const DefaultDir = "/etc/proctor/profiles"

// Schema is the JSON Schema of a profile's file, for editors.
//
//go:embed schema.json
var Schema []byte

// OfflineName is the profile that is always there and grants nothing.
const OfflineName = "offline"

const (
	ending    = ".yaml"
	maxBytes  = 1 << 20
	maxText   = 200
	nameRule  = `a-z, 0-9, ".", "_" and "-", first a letter or digit, at most 64 of them`
	maxInADir = 1000
)

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// A Profile is what a run of its name may do. It has been checked, and is not changed.
type Profile struct {
	Name        string     `yaml:"-" json:"name"`
	Description string     `yaml:"description" json:"description"` // one line for people who choose a profile
	Images      []string   `yaml:"images" json:"images,omitempty"` // names of those that runs may have; left out: every one
	Callers     access.Who `yaml:"callers" json:"callers"`         // who may use it; left out: everybody who may call

	Limits      limits.Range      `yaml:"limits" json:"limits"`               // what is left out is proctor.yaml's to say
	OnAuditLoss limits.LossPolicy `yaml:"on_audit_loss" json:"on_audit_loss"` // default: proctor.yaml's
	Isolation   Isolation         `yaml:"isolation" json:"isolation"`         // default container
	Alerts      thresholds.Of     `yaml:"alerts" json:"alerts"`               // what is left out is proctor.yaml's to say
	Egress      egress.Policy     `yaml:"egress" json:"egress"`               // left out: nothing is granted
}

// Has reports whether runs may have an image.
func (p *Profile) Has(image string) bool { return p.Images == nil || slices.Contains(p.Images, image) }

// An Isolation is what stands between a run and the host.
type Isolation string

// Container is the only one there is: namespaces, a cgroup and filters of one kernel.
const Container Isolation = "container"

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (i *Isolation) UnmarshalYAML(n ast.Node) error {
	if *i = Isolation(strictyaml.Scalar(n)); *i != Container {
		return strictyaml.Refuse(n, "write container, which is the only one there is")
	}
	return nil
}

// Offline is the built-in profile that grants nothing.
func Offline() *Profile {
	p := &Profile{Name: OfflineName, Description: "no network", Isolation: Container}
	if err := p.Egress.Check(); err != nil {
		panic(err) // an empty policy has nothing that could be wrong
	}
	return p
}

// Load reads a profile, whose name is that of the file without .yaml. Errors begin with the
// file, and where that helps with the line.
func Load(file string) (*Profile, error) {
	base := filepath.Base(file)
	name, ok := strings.CutSuffix(base, ending)
	if !ok || !nameSyntax.MatchString(name) {
		return nil, fmt.Errorf("%s: %q is no name of a profile's file: write NAME%s, the name with %s", file, base, ending, nameRule)
	}
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	p := &Profile{Name: name, Isolation: Container}
	if err := strictyaml.Decode(file, data, p); err != nil {
		return nil, err
	}
	// A list whose entries are all commented out has no value, which is read as if the key
	// were not there: for some keys that means everything.
	if field, line, found := strictyaml.Null(data); found && field != "$" {
		field = strings.TrimPrefix(field, "$.")
		return nil, fmt.Errorf("%s:%d: %s has no value: write one, or remove the key", file, line, field)
	}
	if p.Callers.Empty() && strictyaml.Line(data, "$.callers") > 0 {
		err := strictyaml.BadField("callers", "names nobody: give it users or groups, or remove it for everybody")
		return nil, strictyaml.Locate(file, data, "", err)
	}
	if err := p.check(); err != nil {
		return nil, strictyaml.Locate(file, data, "", err)
	}
	if err := p.Egress.Check(); err != nil {
		return nil, strictyaml.Locate(file, data, "egress", err)
	}
	if name == OfflineName && len(p.Egress.Allow) > 0 {
		err := strictyaml.BadField("egress.allow", "is not empty, and the profile %s grants nothing: give this one another name", OfflineName)
		return nil, strictyaml.Locate(file, data, "", err)
	}
	return p, nil
}

func (p *Profile) check() error {
	switch d := p.Description; {
	case strings.TrimSpace(d) == "":
		return strictyaml.BadField("description", "is missing: say in one line what the profile is for")
	case strings.ContainsAny(d, "\r\n") || len(d) > maxText:
		return strictyaml.BadField("description", "has more than one line or %d bytes: keep it to one line", maxText)
	}
	for i, name := range p.Images {
		if strings.TrimSpace(name) == "" {
			return strictyaml.BadField(fmt.Sprintf("images[%d]", i), "is empty: name an image, as `proctor images list` does")
		}
	}
	if err := p.Alerts.Check(); err != nil {
		return err
	}
	return p.Limits.Check()
}

// read takes regular files alone, so that it neither waits nor reads without end.
func read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, missing(file, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is no regular file: a profile is a text file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, missing(file, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, missing(file, err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s: has more than %d bytes: make several profiles of it", file, maxBytes)
	}
	return data, nil
}

// missing puts the file first, as in all errors of this package.
func missing(file string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s: %w", file, err)
}

// LoadDir reads every profile of a directory: the files NAME.yaml in it, but those whose names
// begin with a dot. The profiles are in order of name, [Offline] among them. Bad files are an
// error that names all of them; the others' profiles are returned with it. A directory that does
// not exist is fs.ErrNotExist.
func LoadDir(dir string) ([]*Profile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, missing(dir, err)
	}
	all := map[string]*Profile{OfflineName: Offline()}
	var bad []error
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		switch ext := filepath.Ext(e.Name()); {
		case strings.HasPrefix(e.Name(), "."):
			continue
		case ext == ".yml":
			bad = append(bad, fmt.Errorf("%s: profiles end in %s: rename it", file, ending))
			continue
		case ext != ending:
			continue
		}
		p, err := Load(file)
		if err != nil {
			bad = append(bad, err)
			delete(all, strings.TrimSuffix(e.Name(), ending)) // the built-in one is not what is asked for
			continue
		}
		if all[p.Name] = p; len(all) > maxInADir {
			return nil, fmt.Errorf("%s: has more than %d profiles: remove some", dir, maxInADir)
		}
	}
	var list []*Profile
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list, errors.Join(bad...)
}

// Find reads the profile of a name from a directory, which need not exist for [Offline].
func Find(dir, name string) (*Profile, error) {
	if !nameSyntax.MatchString(name) {
		return nil, fmt.Errorf("%q is no name of a profile: write %s", clip(name), nameRule)
	}
	p, err := Load(filepath.Join(dir, name+ending))
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	case name == OfflineName:
		return Offline(), nil
	}
	list := "proctor profile list"
	if dir != DefaultDir {
		list += " --profiles " + dir
	}
	return nil, fmt.Errorf("no profile %q in %s: `%s` shows those there are", name, dir, list)
}

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
