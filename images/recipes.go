package images

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"proctor/strictyaml"
)

//go:embed recipes/*.yaml
var embedded embed.FS

const recipeSuffix = ".yaml"

// ParseRecipe reads one recipe strictly. The file's name is used in errors and must be the recipe's name and ".yaml".
func ParseRecipe(file string, data []byte) (*Recipe, error) {
	r := &Recipe{Variant: "essential"}
	if err := strictyaml.Decode(file, data, r); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, locateField(file, data, err)
	}
	if base := path.Base(file); base != r.Name+recipeSuffix {
		return nil, locateField(file, data, badField("name", "is %q in a file called %q: make them agree", r.Name, clip(base)))
	}
	r.source = slices.Clone(data)
	return r, nil
}

// Recipes is where recipes are looked up: first in Dir, if it is set, then among those in the binary.
type Recipes struct {
	// Dir holds recipe files that add to or replace the built-in ones. Empty: only those are used.
	Dir string
}

// Load returns the recipe of a name.
func (rs Recipes) Load(name string) (*Recipe, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	for _, src := range rs.sources() {
		data, err := fs.ReadFile(src.fsys, name+recipeSuffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("recipe %s: %w", name, err)
		}
		return ParseRecipe(path.Join(src.label, name+recipeSuffix), data)
	}
	names, err := rs.Names()
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no recipe %q (have %s): add %s%s to a recipe directory", name, strings.Join(names, ", "), name, recipeSuffix)
}

// Names lists all recipes, sorted.
func (rs Recipes) Names() ([]string, error) {
	var names []string
	for _, src := range rs.sources() {
		entries, err := fs.ReadDir(src.fsys, ".")
		if err != nil {
			return nil, fmt.Errorf("recipe directory %s: %w", src.label, err)
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), recipeSuffix); ok && !e.IsDir() && checkName(name) == nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

type recipeSource struct {
	label string
	fsys  fs.FS
}

func (rs Recipes) sources() []recipeSource {
	builtin, err := fs.Sub(embedded, "recipes")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	all := []recipeSource{{"recipes", builtin}}
	if rs.Dir != "" {
		all = slices.Insert(all, 0, recipeSource{rs.Dir, os.DirFS(rs.Dir)})
	}
	return all
}
