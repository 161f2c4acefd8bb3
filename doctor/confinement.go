package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// checkConfinement looks at what a process can be given up with: seccomp filters and
// Landlock.
func checkConfinement(context.Context, Options) []Check {
	return []Check{checkSeccomp(), checkLandlock()}
}

func checkSeccomp() Check {
	const name = "seccomp"
	const fix = "run a kernel built with CONFIG_SECCOMP_FILTER"
	data, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return Check{name, Fail, err.Error(), fix}
	}
	have := strings.Fields(string(data))
	for _, action := range []string{"kill_process", "errno", "allow"} {
		if !slices.Contains(have, action) {
			return Check{name, Fail, fmt.Sprintf("action %s is not available", action), fix}
		}
	}
	return ok(name, "filters, with actions "+strings.Join(have, " "))
}

func checkLandlock() Check {
	const name = "Landlock"
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return Check{name, Warn, fmt.Sprintf("not available (%v): proctor's helpers are confined by seccomp alone", errno), "boot with landlock in lsm="}
	}
	return ok(name, fmt.Sprintf("ABI %d", abi))
}
