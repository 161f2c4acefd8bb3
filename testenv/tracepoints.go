package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HoldTracepoints makes this process a user of the tracepoints at the exits of those system
// calls, of all that are traced, which pick returns, for as long as it lives. The kernel takes some 30 ms to give up a tracepoint with its last user,
// and one after another: a test binary that starts and stops many supervisors would mostly
// wait for that. It does nothing where no root tests run.
func HoldTracepoints(pick func(traced []string) []string) error {
	if os.Getenv("PROCTOR_ROOT_TESTS") != "1" {
		return nil
	}
	dir, err := os.MkdirTemp("", "pt-tracing-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount tracefs: %w", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH) //nolint:errcheck // nothing is left to do about it
	const prefix = "sys_exit_"
	events, err := filepath.Glob(filepath.Join(dir, "events/syscalls", prefix+"*"))
	if err != nil {
		return err
	}
	for i, event := range events {
		events[i] = strings.TrimPrefix(filepath.Base(event), prefix)
	}
	for _, call := range pick(events) {
		path := filepath.Join(dir, "events/syscalls", prefix+call, "id")
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		id, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER0, Config: id, Bits: unix.PerfBitDisabled}
		// Closed by the end of the process.
		if _, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
			return fmt.Errorf("perf event of %s: %w", path, err)
		}
	}
	return nil
}
