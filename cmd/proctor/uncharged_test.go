package main_test

import (
	"strings"
	"testing"

	"proctor/audit"
)

// What the kernel keeps for netlink sockets is charged to nobody, so that a run with much of it
// is ended; a few sockets, as libraries have them, are none of that.
func TestNetlinkIsNoHole(t *testing.T) {
	s := root(t)
	const fill = `
import socket, struct, sys, time
kept = []
for i in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    bad = struct.pack("=IHHII", 3000, 0x7fff, 1 | 4, 1, 0) + b"x" * 2984
    try:
        for _ in range(int(sys.argv[2])): s.send(bad)
    except OSError: pass
    kept.append(s)
time.sleep(1)
print("kept", len(kept))
`
	if v := s.verdict(t, "python", fill, "--", "50", "2"); v.Status != audit.StatusOK || string(v.Stdout.Head) != "kept 50\n" {
		t.Errorf("a few: %s: %s, %q", v.Status, v.Reason, v.Stderr.Head)
	}
	v := s.verdict(t, "python", fill, "--timeout", "60s", "--", "4000", "1000")
	if v.Status != audit.StatusOOM || v.ExitCode != 137 || !strings.Contains(v.Reason, "netlink") || strings.Contains(string(v.Stdout.Head), "kept") {
		t.Errorf("many: %s, %d: %s", v.Status, v.ExitCode, v.Reason)
	}
}
