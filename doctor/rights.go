package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What the supervisor, containerd and runc use as root.
var neededCaps = []struct {
	bit  uint
	name string
}{
	{unix.CAP_CHOWN, "CAP_CHOWN"},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
	{unix.CAP_FOWNER, "CAP_FOWNER"},
	{unix.CAP_KILL, "CAP_KILL"},
	{unix.CAP_SETGID, "CAP_SETGID"},
	{unix.CAP_SETUID, "CAP_SETUID"},
	{unix.CAP_SETPCAP, "CAP_SETPCAP"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"},
	{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
	{unix.CAP_MKNOD, "CAP_MKNOD"},
	{unix.CAP_SETFCAP, "CAP_SETFCAP"},
	{unix.CAP_PERFMON, "CAP_PERFMON"},
	{unix.CAP_BPF, "CAP_BPF"},
}

func checkRights(context.Context, Options) []Check {
	const name = "rights"
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return []Check{{name, Fail, fmt.Sprintf("capabilities: %v", err), "run on a Linux host, not in an emulated one"}}
	}
	has := func(bit uint) bool { return data[bit/32].Effective&(1<<(bit%32)) != 0 }

	if uid := os.Geteuid(); uid != 0 {
		return []Check{{name, Warn, fmt.Sprintf("uid %d: client commands work, `proctor serve` needs root", uid), "run `sudo proctor doctor`"}}
	}
	var missing []string
	for _, c := range neededCaps {
		if !has(c.bit) {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return []Check{{name, Fail, "root without " + strings.Join(missing, ", "), "give these capabilities to whatever starts proctor serve (container, systemd unit)"}}
	}
	detail := "root with the capabilities needed"
	if !has(unix.CAP_SYS_RESOURCE) {
		detail += "; without CAP_SYS_RESOURCE, OOM scores are inherited and not lowered"
	}
	return []Check{ok(name, detail)}
}
