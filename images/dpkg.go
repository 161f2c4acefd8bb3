package images

import (
	"fmt"
	"os"
	"path"
	"strings"
)

const dpkgStatus = "var/lib/dpkg/status"

// installedPackages reads the image's package database: name to version of all that is installed.
func installedPackages(status string) map[string]string {
	pkgs := map[string]string{}
	for _, fields := range stanzas(status) {
		var name, version, state string
		for _, f := range fields {
			key, value, _ := strings.Cut(f, ":")
			switch value = strings.TrimSpace(value); key {
			case "Package":
				name = value
			case "Version":
				version = value
			case "Status":
				state = value
			}
		}
		if name != "" && strings.HasSuffix(state, " installed") {
			pkgs[name] = version
		}
	}
	return pkgs
}

// settlePackages takes the stand-in out of the package database and returns what is really installed. A package of the
// recipe's Without list that is there nevertheless is an error.
func settlePackages(root *os.Root, without []string) (map[string]string, error) {
	data, err := root.ReadFile(dpkgStatus)
	if err != nil {
		return nil, fmt.Errorf("package database: %w", err)
	}
	pkgs := installedPackages(string(data))
	for _, p := range without {
		if v, ok := pkgs[p]; ok {
			return nil, fmt.Errorf("package %s is installed (%s) although the recipe does without it: something depends on just this version; take it out of the recipe's without list",
				p, v)
		}
	}
	if _, ok := pkgs[standinName]; ok {
		delete(pkgs, standinName)
		var kept strings.Builder
		for _, fields := range stanzas(string(data)) {
			if fields[0] != "Package: "+standinName {
				kept.WriteString(strings.Join(fields, "\n") + "\n\n")
			}
		}
		if err := putFile(root, dpkgStatus, kept.String(), 0o644); err != nil {
			return nil, err
		}
		for _, ext := range []string{".list", ".md5sums"} {
			if err := root.RemoveAll(path.Join("var/lib/dpkg/info", standinName+ext)); err != nil {
				return nil, err
			}
		}
	}
	return pkgs, nil
}
