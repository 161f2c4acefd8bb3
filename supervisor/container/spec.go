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

// inodeBytes is what a tmpfs inode costs the memory cgroup, rounded up. Measured on
// Linux 6.18: about 1 KiB with its dentry.
const inodeBytes = 1024

// overhead is what init and the kernel's own bookkeeping for the box need.
const overhead = 4 << 20

func ociSpec(spec box.Spec, idBase uint32, cgroupPath string, w *workspace, initBinary string) *specs.Spec {
	// What is written to scratch is charged to the same cgroup: without room for it, a
	// full scratch would be an OOM kill instead of ENOSPC.
	memory := spec.Limits.Memory + spec.Limits.ScratchBytes + spec.Limits.ScratchInodes*inodeBytes + overhead
	quota := int64(math.Round(spec.Limits.CPUs * cpuPeriod))
	period := uint64(cpuPeriod)
	pids := spec.Limits.Processes
	nofile := uint64(spec.Limits.OpenFiles)
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
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
				{Type: "RLIMIT_NOFILE", Soft: min(1024, nofile), Hard: nofile},
			},
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

// maskedPaths show the host, or the kernel, to whoever reads them. They appear empty.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/buddyinfo", "/proc/cmdline", "/proc/config.gz",
	"/proc/consoles", "/proc/diskstats", "/proc/driver", "/proc/interrupts", "/proc/iomem",
	"/proc/ioports", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys",
	"/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags",
	"/proc/latency_stats", "/proc/locks", "/proc/modules", "/proc/mtrr", "/proc/pagetypeinfo",
	"/proc/partitions", "/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/slabinfo",
	"/proc/softirqs", "/proc/sysvipc", "/proc/timer_list", "/proc/timer_stats", "/proc/tty",
	"/proc/vmallocinfo", "/proc/zoneinfo",
}

// readonlyPaths would change the host if they could be written. (The user namespace
// refuses that too: two locks.)
var readonlyPaths = []string{
	"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
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
