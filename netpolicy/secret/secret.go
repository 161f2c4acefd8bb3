// Package secret keeps secrets out of what is printed, logged and written: a [Secret] shows
// itself as [redacted] wherever it turns up by accident, and as what it is to those alone who
// call [Secret.Reveal].
package secret

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Secret is some bytes that nobody is to see. The zero one is empty.
type Secret struct {
	// A function, since what prints unexported fields by reflection follows pointers.
	value func() *[]byte
}

// New makes a secret of a copy of b.
func New(b []byte) Secret {
	value := append([]byte{}, b...)
	return Secret{func() *[]byte { return &value }}
}

// Reveal is a copy of the secret, which the caller may overwrite after use.
func (s Secret) Reveal() []byte {
	if s.value == nil {
		return nil
	}
	return append([]byte{}, *s.value()...)
}

// Empty reports whether there is no secret.
func (s Secret) Empty() bool { return s.value == nil || len(*s.value()) == 0 }

// Wipe overwrites the secret, and with it all copies of s. It is empty after that. No other
// method may be running.
func (s Secret) Wipe() {
	if s.value != nil {
		value := s.value()
		clear(*value)
		*value = nil
	}
}

// String implements fmt.Stringer, and those below the interfaces of all that prints.
func (Secret) String() string { return redacted }

func (Secret) GoString() string { return redacted }

func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
