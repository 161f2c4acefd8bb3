package images

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Recipe says what goes into an image. docs/images.md describes the file format for people.
type Recipe struct {
	// Name is what a run asks for; the recipe's file is called Name.yaml.
	Name string `yaml:"name"`
	// Description is one line for people who choose an image.
	Description string `yaml:"description"`
	// Suite is the Debian release, such as bookworm. The building machine's apt sources must offer it.
	Suite string `yaml:"suite"`
	// Variant is what is installed besides Packages: essential (the default), apt, minbase or custom (nothing).
	Variant string `yaml:"variant,omitempty"`
	// Packages are Debian package names.
	Packages []string `yaml:"packages"`
	// Without are packages that others depend on and that this image does without. They are satisfied by an empty
	// package while installing; the image's package database then shows the dependency as unmet.
	Without []string `yaml:"without,omitempty"`
	// Env is the environment that every run starts with.
	Env map[string]string `yaml:"env,omitempty"`
	// Interpreters maps a language to the command that takes a file of it as its next argument.
	Interpreters map[string][]string `yaml:"interpreters"`
	// Files are written into the image after installation, mode 0644, owned by root.
	Files map[string]string `yaml:"files,omitempty"`
	// Setup are commands run in the image, without network, after Files are written.
	Setup []SetupStep `yaml:"setup,omitempty"`
	// Remove are absolute patterns of what is deleted in the end; "**" stands for any number of directories.
	Remove []string `yaml:"remove,omitempty"`

	// source is the text the recipe was read from: it, not the parsed form, decides whether a rebuild is due.
	source []byte
}

// SetupStep is one command of a recipe's setup.
type SetupStep struct {
	// Name is shown as progress.
	Name string `yaml:"name"`
	// Run is the command with its arguments, found in the image.
	Run []string `yaml:"run"`
}

var (
	packageSyntax  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	suiteSyntax    = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	envSyntax      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	languageSyntax = regexp.MustCompile(`^[a-z][a-z0-9+-]*$`)
	variants       = []string{"essential", "apt", "minbase", "custom"}
)

// fieldError is a mistake in the value of one field. The reader of a file adds where it is.
type fieldError struct {
	field string // YAML path, such as $.env.LANG
	msg   string
}

func (e *fieldError) Error() string { return strings.TrimPrefix(e.field, "$.") + ": " + e.msg }

func badField(field, format string, a ...any) error {
	return &fieldError{field: "$." + field, msg: fmt.Sprintf(format, a...)}
}

// Validate checks everything that can be known without building, and names the first thing that is wrong.
func (r *Recipe) Validate() error {
	if err := checkName(r.Name); err != nil {
		return badField("name", "%v", err)
	}
	if strings.TrimSpace(r.Description) == "" {
		return badField("description", "is missing: say in one line what the image is for")
	}
	if strings.ContainsAny(r.Description, "\n\r") {
		return badField("description", "has more than one line: keep it to one")
	}
	if !suiteSyntax.MatchString(r.Suite) {
		return badField("suite", "%q is not a Debian release: use its code name, such as bookworm", clip(r.Suite))
	}
	if !slices.Contains(variants, r.Variant) {
		return badField("variant", "%q is unknown: use one of %s", clip(r.Variant), strings.Join(variants, ", "))
	}
	if len(r.Packages) == 0 {
		return badField("packages", "is empty: name at least one Debian package")
	}
	if err := validatePackages("packages", r.Packages); err != nil {
		return err
	}
	if err := validatePackages("without", r.Without); err != nil {
		return err
	}
	for i, p := range r.Without {
		if slices.Contains(r.Packages, p) {
			return badField(fmt.Sprintf("without[%d]", i), "%q is also in packages: remove one", p)
		}
	}
	if err := r.validateRuntime(); err != nil {
		return err
	}
	return r.validateFiles()
}

func validatePackages(field string, list []string) error {
	for i, p := range list {
		if !packageSyntax.MatchString(p) {
			return badField(fmt.Sprintf("%s[%d]", field, i), "%q is not a Debian package name", clip(p))
		}
		if slices.Index(list, p) != i {
			return badField(fmt.Sprintf("%s[%d]", field, i), "%q is listed twice: remove one", p)
		}
	}
	return nil
}

func (r *Recipe) validateRuntime() error {
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		if !envSyntax.MatchString(k) {
			return badField("env", "%q is not a variable name: use letters, digits and _", clip(k))
		}
		if strings.ContainsRune(r.Env[k], 0) {
			return badField("env."+k, "holds a NUL byte: remove it")
		}
	}
	if len(r.Interpreters) == 0 {
		return badField("interpreters", `is empty: name at least one, such as "sh: [/bin/sh]"`)
	}
	for _, lang := range slices.Sorted(maps.Keys(r.Interpreters)) {
		argv := r.Interpreters[lang]
		if !languageSyntax.MatchString(lang) {
			return badField("interpreters", "language %q is not valid: use lower-case letters, digits, + and -", clip(lang))
		}
		if len(argv) == 0 || !cleanAbs(argv[0]) {
			return badField("interpreters."+lang, "must start with the absolute path of a program, such as [/bin/sh]")
		}
	}
	return nil
}

func (r *Recipe) validateFiles() error {
	for _, p := range slices.Sorted(maps.Keys(r.Files)) {
		if !cleanAbs(p) {
			return badField("files", "%q is not a clean absolute path", clip(p))
		}
	}
	for i, s := range r.Setup {
		if strings.TrimSpace(s.Name) == "" || strings.ContainsAny(s.Name, "\n\r") {
			return badField(fmt.Sprintf("setup[%d].name", i), "is missing or has more than one line: say what the step does")
		}
		if len(s.Run) == 0 || !cleanAbs(s.Run[0]) {
			return badField(fmt.Sprintf("setup[%d].run", i), "must start with the absolute path of a program")
		}
	}
	for i, p := range r.Remove {
		field := fmt.Sprintf("remove[%d]", i)
		if !cleanAbs(p) {
			return badField(field, "%q is not a clean absolute path", clip(p))
		}
		if _, err := path.Match(p, "/"); err != nil {
			return badField(field, "%q: %v", clip(p), err)
		}
		if first, _, _ := strings.Cut(p[1:], "/"); strings.ContainsAny(first, "*?[") {
			return badField(field, "%q would match whole top-level directories: write the first part out", clip(p))
		}
	}
	return nil
}

// cleanAbs tells whether p is an absolute path below the root, without "." or ".." or doubled slashes.
func cleanAbs(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsRune(p, 0)
}
