package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// The oldest kernel with everything used: cgroup iterators came last, in 6.1.
const minMajor, minMinor = 6, 1

func checkKernel(context.Context, Options) []Check {
	return []Check{checkRelease(), checkArch(), checkBTF(), checkLockdown()}
}

func checkRelease() Check {
	const name = "kernel"
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Check{name, Fail, fmt.Sprintf("uname: %v", err), "run on Linux"}
	}
	return judgeRelease(name, unix.ByteSliceToString(uts.Release[:]))
}

func judgeRelease(name, release string) Check {
	fix := fmt.Sprintf("run Linux %d.%d or later (Debian 12 or later, Ubuntu 24.04 or later)", minMajor, minMinor)
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return Check{name, Warn, fmt.Sprintf("Linux %q: version not understood", release), fix}
	}
	if major < minMajor || major == minMajor && minor < minMinor {
		return Check{name, Fail, fmt.Sprintf("Linux %s is too old", release), fix}
	}
	return ok(name, "Linux "+release)
}

func checkArch() Check {
	const name = "architecture"
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return ok(name, runtime.GOARCH)
	}
	return Check{name, Fail, runtime.GOARCH + " has no BPF programs and no seccomp profile of ours", "run on amd64 or arm64"}
}

func checkBTF() Check {
	const name = "BTF"
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return Check{name, Fail, err.Error(), "run a kernel built with CONFIG_DEBUG_INFO_BTF (every distribution's current one is)"}
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return outcome(name, "", fmt.Errorf("not readable: %w", err), "run a distribution's kernel")
	}
	// The types that the programs walk; if the kernel hides them nothing can be seen.
	for _, typ := range []string{"task_struct", "dentry", "cgroup"} {
		var s *btf.Struct
		if err := spec.TypeByName(typ, &s); err != nil {
			return Check{name, Fail, fmt.Sprintf("struct %s: %v", typ, err), "run a distribution's kernel"}
		}
	}
	return ok(name, "/sys/kernel/btf/vmlinux")
}

func checkLockdown() Check {
	const name = "lockdown"
	text, err := readLockdown()
	switch {
	case needsRoot(err):
		return NeedsRoot(name)
	case err != nil:
		return ok(name, "not compiled into this kernel")
	}
	mode := "none"
	if _, after, found := strings.Cut(text, "["); found {
		mode, _, _ = strings.Cut(after, "]")
	}
	switch mode {
	case "confidentiality":
		return Check{name, Fail, "confidentiality: programs may not read kernel memory, so nothing would be seen", "boot with lockdown=integrity or without lockdown="}
	case "integrity":
		return ok(name, "integrity: the programs that proctor uses are allowed")
	}
	return ok(name, mode)
}

// readLockdown reads the mode also where securityfs is not mounted, through a mount
// that no directory ever holds.
func readLockdown() (string, error) {
	if data, err := os.ReadFile("/sys/kernel/security/lockdown"); err == nil {
		return string(data), nil
	}
	dir, err := detachedMount("securityfs", nil)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, "lockdown", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "lockdown")
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<10))
	return string(data), err
}
