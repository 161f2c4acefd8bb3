package container

import (
	"strings"
	"testing"
)

func TestNetlinkBytes(t *testing.T) {
	const header = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	const line = "00000000ae3ee2ee 0   1234       00000000 1000     24       0     2        0        4711\n"
	for name, test := range map[string]struct {
		text string
		want int64
	}{
		"none":          {header, 0},
		"nothing":       {"", 0},
		"one":           {header + line, socketBytes + 1024},
		"two":           {header + line + line, 2 * (socketBytes + 1024)},
		"not on and on": {header + strings.Repeat(line, 1_000_000), 20_480 + socketBytes + 1024 - 20_480%(socketBytes+1024)},
	} {
		if got, err := netlinkBytes(strings.NewReader(test.text), 20_480); err != nil || got != test.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, test.want)
		}
	}
	for _, bad := range []string{header + "x\n", header + "a b c d e f g\n", header + strings.Repeat("x", 1<<20)} {
		if _, err := netlinkBytes(strings.NewReader(bad), 1); err == nil {
			t.Errorf("%.60q is taken", bad)
		}
	}
}
