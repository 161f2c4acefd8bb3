package images

import (
	"errors"
	"fmt"
	"strings"

	"proctor/strictyaml"
)

// locateField adds the line of the field that a fieldError names, as far as the file has it.
func locateField(file string, data []byte, err error) error {
	var fe *fieldError
	if !errors.As(err, &fe) {
		return fmt.Errorf("%s: %w", file, err)
	}
	if line := strictyaml.Line(data, fe.field); line > 0 {
		return fmt.Errorf("%s:%d: %w", file, line, err)
	}
	return fmt.Errorf("%s: %w", file, err)
}

func oneLine(s string) string {
	return clipLine(strings.Join(strings.Fields(s), " "))
}

func clipLine(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
