package audit

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// jsonFields calls f with the name of every field in the JSON of t.
func jsonFields(t reflect.Type, seen map[reflect.Type]bool, f func(string)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] || t.PkgPath() != reflect.TypeFor[Event]().PkgPath() {
		return
	}
	seen[t] = true
	for field := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(field).Tag.Get("json"), ",")
		if tag != "" && tag != "-" {
			f(tag)
		}
		jsonFields(t.Field(field).Type, seen, f)
	}
}

// Whoever reads records finds every field in docs/events.md.
func TestFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	jsonFields(reflect.TypeFor[Event](), map[reflect.Type]bool{}, func(name string) {
		n++
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/events.md does not have %q", name)
		}
	})
	if n < 100 {
		t.Errorf("there are %d fields only", n)
	}
}
