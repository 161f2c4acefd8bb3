package testenv

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// descendants names the processes below this one. Adopted orphans that have ended are
// collected on the way: nobody else does. A zombie is given until the next call, so
// that a child which a goroutine is just waiting for isn't taken from it.
func descendants(zombies map[int]bool) []string {
	parents, states := map[int]int{}, map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, state, ok := readStat(pid); ok {
			parents[pid], states[pid] = parent, state
		}
	}
	var names []string
	for pid := range parents {
		if !isBelow(pid, os.Getpid(), parents) {
			continue
		}
		if states[pid] == "Z" && parents[pid] == os.Getpid() {
			if zombies[pid] {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
				delete(zombies, pid)
				continue
			}
			zombies[pid] = true
		}
		name := fmt.Sprintf("%d %s", pid, commandLine(pid))
		if states[pid] == "Z" {
			name += " (zombie)"
		}
		names = append(names, name)
	}
	return names
}

func isBelow(pid, ancestor int, parents map[int]int) bool {
	// The bound is for a table that changed while it was read.
	for range len(parents) {
		parent, ok := parents[pid]
		if !ok {
			return false
		}
		if parent == ancestor {
			return true
		}
		pid = parent
	}
	return false
}

func readStat(pid int) (parent int, state string, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	s := string(data)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 2 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[0], err == nil
}

func commandLine(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return "[" + strings.TrimSpace(string(comm)) + "]"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
}
