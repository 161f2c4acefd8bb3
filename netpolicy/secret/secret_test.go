package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const canary = "canary-5f3a9c"

type holder struct {
	Open   Secret
	hidden Secret
	Ptr    *Secret
	List   []Secret
	Map    map[string]Secret
	Any    any
}

type embedded struct{ Secret }

// Nothing that prints or marshals shows a secret, wherever it is kept.
func TestRedacted(t *testing.T) {
	s := New([]byte(canary))
	h := holder{s, s, &s, []Secret{s}, map[string]Secret{"k": s}, s}
	var out bytes.Buffer
	for _, v := range []any{s, &s, h, &h, []any{s}, [1]Secret{s}, struct{ s Secret }{s}, embedded{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%T", "%p", "%w", "%!"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		fmt.Fprintln(&out, v)
		for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal, xml.Marshal, func(v any) ([]byte, error) {
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(v)
			return b.Bytes(), err
		}} {
			b, err := marshal(v)
			fmt.Fprintln(&out, string(b), err)
		}
		log.New(&out, "", 0).Println(v)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v, slog.Group("g", "v", v))
		fmt.Fprintln(&out, fmt.Errorf("with %v: %w", v, errors.New("x")))
	}
	func() {
		defer func() { fmt.Fprintln(&out, recover()) }()
		panic(s)
	}()
	text := out.String()
	if !strings.Contains(text, `"Open":"[redacted]"`) || !strings.Contains(text, "v=[redacted]") || !strings.Contains(text, "\n[redacted]\n") {
		t.Errorf("does not show that something is there:\n%.2000s", text)
	}
	for _, form := range []string{
		canary, hex.EncodeToString([]byte(canary)), strings.ToUpper(hex.EncodeToString([]byte(canary))),
		base64.StdEncoding.EncodeToString([]byte(canary)), strings.Trim(fmt.Sprint([]byte(canary)), "[]"), "0x63, 0x61, 0x6e",
	} {
		if i := strings.Index(text, form); i >= 0 {
			t.Errorf("%q is shown: %q", form, text[max(0, i-200):min(len(text), i+200)])
		}
	}
}

func TestReveal(t *testing.T) {
	b := []byte(canary)
	s := New(b)
	clear(b)
	got := s.Reveal()
	if string(got) != canary || s.Empty() {
		t.Fatalf("%q", got)
	}
	clear(got)
	if string(s.Reveal()) != canary {
		t.Error("what is revealed is no copy")
	}
	inner := *s.value()
	other := s
	s.Wipe()
	if len(other.Reveal()) > 0 || !other.Empty() || !bytes.Equal(inner, make([]byte, len(canary))) {
		t.Error("it is still there")
	}
	s.Wipe()
	var none Secret
	none.Wipe()
	if none.Reveal() != nil || !none.Empty() || !New(nil).Empty() {
		t.Error("the zero secret is not empty")
	}
}
