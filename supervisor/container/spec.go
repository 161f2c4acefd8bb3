package container

import (
	"math"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"

	"proctor/supervisor/box"
)

// Where things stand inside a box.
const (
	initPath    = "/.proctor/init"
	controlDir  = "/.proctor/ctl"
	controlName = "init.sock"
)

// The user that the code runs as, inside the box. The image's passwd names it.
const (
	codeUID = 1000
	codeGID = 1000
)

// idRange is the number of user and group ids a box has.
const idRange = 65536

// cpuPeriod is the CFS bandwidth period in microseconds: the kernel's default.
const cpuPeriod = 100_000

func ociSpec(spec box.Spec, idBase uint32, cgroupPath string, w *workspace, initBinary string) *specs.Spec {
	memory := spec.Limits.Charged()
	quota := int64(math.Round(spec.Limits.CPUs * cpuPeriod))
	period := uint64(cpuPeriod)
	pids := spec.Limits.Processes
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: idBase, Size: idRange}}

	return &specs.Spec{
		Version:  specs.Version,
		Hostname: "box",
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{
			Args:            []string{initPath, path.Join(controlDir, controlName)},
			Cwd:             "/",
			Env:             []string{}, // the program's comes with the go message
			User:            specs.User{UID: codeUID, GID: codeGID},
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{},
			Rlimits:         rlimits(uint64(spec.Limits.OpenFiles)),
			OOMScoreAdj:     new(oomScoreAdj),
		},
		Mounts: mounts(w, initBinary),
		Linux: &specs.Linux{
			CgroupsPath: "/" + cgroupPath,
			UIDMappings: ids,
			GIDMappings: ids,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
				{Type: specs.NetworkNamespace, Path: spec.NetNS},
			},
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}, // equal: no swap
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
				Pids:   &specs.LinuxPids{Limit: &pids},
				Devices: []specs.LinuxDeviceCgroup{
					{Allow: false, Access: "rwm"},
					{Allow: true, Type: "c", Major: new(int64(1)), Minor: new(int64(3)), Access: "rw"}, // null
					{Allow: true, Type: "c", Major: new(int64(1)), Minor: new(int64(5)), Access: "rw"}, // zero
					{Allow: true, Type: "c", Major: new(int64(1)), Minor: new(int64(7)), Access: "rw"}, // full
					{Allow: true, Type: "c", Major: new(int64(1)), Minor: new(int64(8)), Access: "rw"}, // random
					{Allow: true, Type: "c", Major: new(int64(1)), Minor: new(int64(9)), Access: "rw"}, // urandom
					{Allow: true, Type: "c", Major: new(int64(5)), Minor: new(int64(0)), Access: "rw"}, // tty
				},
			},
			Seccomp:           seccomp(),
			RootfsPropagation: "private",
			MaskedPaths:       maskedPaths,
			ReadonlyPaths:     readonlyPaths,
		},
	}
}

// oomScoreAdj makes a box the first to go when the host is out of memory, and not, as what the
// supervisor starts would otherwise be, the last: its unit protects it. Code can only raise it.
const oomScoreAdj = 500

// rlimits are those that must not come from whoever started the supervisor: its unit may lock any
// memory, its user may be one with rights to real-time scheduling.
func rlimits(files uint64) []specs.POSIXRlimit {
	return []specs.POSIXRlimit{
		{Type: "RLIMIT_CORE", Soft: 1, Hard: 1},                // see limitCalls
		{Type: "RLIMIT_MEMLOCK", Soft: 8 << 20, Hard: 8 << 20}, // the kernel's default
		{Type: "RLIMIT_NICE", Soft: 0, Hard: 0},
		{Type: "RLIMIT_NOFILE", Soft: min(1024, files), Hard: files},
		{Type: "RLIMIT_RTPRIO", Soft: 0, Hard: 0},
	}
}

// maskedPaths show the host, its load or its hardware to whoever reads them, and no ordinary
// code needs them. They appear empty. (docs/privilege.md has what is left, and why.)
var maskedPaths = []string{
	"/proc/acpi", "/proc/allocinfo", "/proc/asound", "/proc/bootconfig", "/proc/buddyinfo",
	"/proc/bus", "/proc/cmdline", "/proc/config.gz", "/proc/consoles", "/proc/crypto",
	"/proc/devices", "/proc/diskstats", "/proc/dma", "/proc/driver", "/proc/dynamic_debug",
	"/proc/fb", "/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/irq",
	"/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg",
	"/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats",
	"/proc/lock_stat", "/proc/lockdep", "/proc/lockdep_chains", "/proc/lockdep_stats",
	"/proc/locks", "/proc/mdstat", "/proc/misc", "/proc/modules", "/proc/mtrr",
	"/proc/pagetypeinfo", "/proc/partitions", "/proc/pressure", "/proc/profile",
	"/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/slabinfo", "/proc/softirqs",
	"/proc/swaps", "/proc/sys/kernel/random/boot_id", "/proc/sysvipc", "/proc/timer_list",
	"/proc/timer_stats", "/proc/tty", "/proc/vmallocinfo", "/proc/vmcore", "/proc/zoneinfo",
}

// readonlyPaths would change the host if they could be written. (The user namespace
// refuses that too: two locks.)
var readonlyPaths = []string{
	"/proc/sys", "/proc/sysrq-trigger",
}

func mounts(w *workspace, initBinary string) []specs.Mount {
	bind := func(target, source string, options ...string) specs.Mount {
		return specs.Mount{
			Destination: target, Type: "bind", Source: source,
			Options: append([]string{"rbind", "private", "nosuid", "nodev"}, options...),
		}
	}
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		// runc puts the six devices here; nothing else fits in, and only the box's root,
		// whom nobody can become, could write here.
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=64"}},
		bind(initPath, initBinary, "ro"),
		bind(controlDir, w.path("ctl"), "ro", "noexec"),
		bind(box.TrustDir, w.path("trust"), "ro", "noexec"),
		bind("/sys", w.path("sys"), "ro", "noexec"),
		bind("/code", w.path("code"), "ro"),
		bind("/inputs", w.path("inputs"), "ro", "noexec"),
		bind("/outputs", w.path("outputs")),
		bind("/scratch", w.path("scratch")),
		bind("/tmp", w.path("tmp")),
		bind("/var/tmp", w.path("tmp")),
		bind("/dev/shm", w.path("shm")),
	}
	for _, name := range []string{"hostname", "hosts", "resolv.conf", "machine-id"} {
		list = append(list, bind("/etc/"+name, w.path("etc", name), "ro", "noexec"))
	}
	return list
}
