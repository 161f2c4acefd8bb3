package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the documentation has operators write is taken.
func TestDocumentedConfiguration(t *testing.T) {
	// The users and groups of the examples are not on every host; a number always is one.
	here := strings.NewReplacer("groups: [analysts]", "groups: [4242]", "users: [soc]", "users: [4243]")
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	for doc, least := range map[string]int{"configuration.md": 1, "alerts.md": 3} {
		data, err := os.ReadFile(filepath.Join("../../docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		blocks := block.FindAllSubmatch(data, -1)
		if len(blocks) < least {
			t.Errorf("%s: %d blocks, want %d at least", doc, len(blocks), least)
		}
		for _, b := range blocks {
			if _, err := load(t, here.Replace(string(b[1]))); err != nil {
				t.Errorf("%s: %v:\n%s", doc, err, b[1])
			}
		}
	}
}

// The rule of the host as a whole and the host's name stand side by side.
func TestHostAndItsName(t *testing.T) {
	c, err := load(t, "alerts: {host: {threshold: 300, window: 1h}, host_name: build-7}\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Alerts.HostName != "build-7" || c.Alerts.Rules.Host.Threshold != 300 {
		t.Errorf("%+v", c.Alerts)
	}
}
