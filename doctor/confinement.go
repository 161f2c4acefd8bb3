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

// leastLandlock is the version of Linux 5.19, with which a process can be given no path at all.
const leastLandlock = 2

func checkLandlock() Check {
	const name = "Landlock"
	const fix = "run a kernel built with CONFIG_SECURITY_LANDLOCK, with landlock in lsm= (Debian's has both)"
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return Check{name, Fail, fmt.Sprintf("not available (%v): no gateway is started unconfined", errno), fix}
	}
	if abi < leastLandlock {
		return Check{name, Fail, fmt.Sprintf("ABI %d: %d is needed", abi, leastLandlock), fix}
	}
	return ok(name, fmt.Sprintf("ABI %d: gateways are given no file", abi))
}
