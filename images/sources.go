package images

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// aptSources holds the part of a machine's apt sources that offers one Debian release, in apt's deb822 form.
type aptSources struct {
	stanzas []string
}

func (s aptSources) String() string { return strings.Join(s.stanzas, "\n") }

// hostSources reads the sources below etc (normally /etc/apt) and keeps, of the suites that belong to the release
// (itself, -updates, -security), the main component. Other repositories of the machine have no part in an image.
func hostSources(etc, suite string) (aptSources, error) {
	files := []string{filepath.Join(etc, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		more, err := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern))
		if err != nil {
			return aptSources{}, err
		}
		files = append(files, more...)
	}
	var out aptSources
	var seen []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return aptSources{}, fmt.Errorf("apt sources: %w", err)
		}
		entries := parseOneLine(string(data))
		if strings.HasSuffix(f, ".sources") {
			entries = parseDeb822(string(data))
		}
		for _, e := range entries {
			seen = append(seen, e.suites...)
			if s, ok := e.narrow(suite); ok {
				out.stanzas = append(out.stanzas, s)
			}
		}
	}
	if len(out.stanzas) == 0 {
		slices.Sort(seen)
		have := strings.Join(slices.Compact(seen), ", ")
		if have == "" {
			have = "nothing"
		}
		return out, fmt.Errorf("apt sources in %s offer %s but not suite %q with component main: add a source for it, or change the recipe's suite",
			etc, have, suite)
	}
	return out, nil
}

// aptEntry is one source, whichever of the two forms it was written in.
type aptEntry struct {
	uris, suites, components []string
	binary, enabled          bool
	rest                     []string // other deb822 fields with their continuation lines, such as Signed-By
}

// narrow returns the entry as a stanza with what belongs to the release, and whether anything does.
func (e aptEntry) narrow(suite string) (string, bool) {
	var suites []string
	for _, s := range e.suites {
		if s == suite || s == suite+"-updates" || s == suite+"-security" || s == suite+"/updates" {
			suites = append(suites, s)
		}
	}
	uris := slices.DeleteFunc(slices.Clone(e.uris), func(u string) bool { return strings.HasPrefix(u, "cdrom:") })
	if !e.binary || !e.enabled || len(suites) == 0 || len(uris) == 0 || !slices.Contains(e.components, "main") {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n", strings.Join(uris, " "), strings.Join(suites, " "))
	for _, r := range e.rest {
		b.WriteString(r + "\n")
	}
	return b.String(), true
}

// parseOneLine reads lines such as "deb [signed-by=/key arch=amd64] URI suite main".
func parseOneLine(text string) []aptEntry {
	var all []aptEntry
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind != "deb" {
			continue
		}
		e := aptEntry{binary: true, enabled: true}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			options, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			rest = after
			for _, o := range strings.Fields(options) {
				if k, v, ok := strings.Cut(o, "="); ok && optionFields[k] != "" {
					e.rest = append(e.rest, optionFields[k]+": "+strings.ReplaceAll(v, ",", " "))
				}
			}
		}
		if f := strings.Fields(rest); len(f) >= 3 {
			e.uris, e.suites, e.components = f[:1], f[1:2], f[2:]
			all = append(all, e)
		}
	}
	return all
}

// optionFields maps the options of one-line sources to the deb822 fields that say the same.
var optionFields = map[string]string{
	"signed-by": "Signed-By", "arch": "Architectures", "trusted": "Trusted",
	"check-valid-until": "Check-Valid-Until", "check-date": "Check-Date",
}

// parseDeb822 reads stanzas of "Field: value" lines, values going on in indented lines.
func parseDeb822(text string) []aptEntry {
	var all []aptEntry
	for _, stanza := range stanzas(text) {
		e := aptEntry{enabled: true}
		for _, field := range stanza {
			key, value, _ := strings.Cut(field, ":")
			switch words := strings.Fields(value); strings.ToLower(key) {
			case "types":
				e.binary = slices.Contains(words, "deb")
			case "uris":
				e.uris = words
			case "suites":
				e.suites = words
			case "components":
				e.components = words
			case "enabled":
				e.enabled = !slices.Contains([]string{"no", "false", "0", "off"}, strings.ToLower(strings.TrimSpace(value)))
			default:
				e.rest = append(e.rest, field)
			}
		}
		all = append(all, e)
	}
	return all
}

// stanzas splits a Debian control file into stanzas of fields; a field keeps its continuation lines. Comments go.
func stanzas(text string) [][]string {
	var all [][]string
	var cur []string
	flush := func() {
		if len(cur) > 0 {
			all = append(all, cur)
		}
		cur = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			flush()
		case (line[0] == ' ' || line[0] == '\t') && len(cur) > 0:
			cur[len(cur)-1] += "\n" + line
		default:
			cur = append(cur, line)
		}
	}
	flush()
	return all
}
