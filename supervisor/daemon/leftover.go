package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// identity is what the pid file says of the containerd that was started: enough to
// tell it from a stranger that was given the same number later.
type identity struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"` // field 22 of /proc/PID/stat
	Exe        string `json:"exe"`
	Config     string `json:"config"`
}

func identify(pid int, configFile string) (identity, error) {
	id := identity{PID: pid, Config: configFile}
	var err error
	if id.StartTicks, err = startTicks(pid); err != nil {
		return id, err
	}
	id.Exe, err = readExe(pid)
	return id, err
}

func (id identity) write(path string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(data, '\n'), 0o600)
}

// alive reports whether the process that was written down is still that one.
func (id identity) alive() bool {
	ticks, err := startTicks(id.PID)
	if err != nil || ticks != id.StartTicks {
		return false
	}
	exe, err := readExe(id.PID)
	if err != nil || exe != id.Exe {
		return false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.PID))
	if err != nil {
		return false
	}
	return slices.Contains(strings.Split(string(cmdline), "\x00"), id.Config)
}

// endLeftover ends the containerd that an earlier supervisor with the same state
// directory left running, if there is one. It is called with the directory locked, so
// no live supervisor is watching that containerd.
func (o Options) endLeftover() error {
	data, err := os.ReadFile(o.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("leftover containerd: %w", err)
	}
	defer os.Remove(o.pidFile())

	var id identity
	if err := json.Unmarshal(data, &id); err != nil || id.PID <= 1 || id.Config != o.configFile() {
		o.Logger.Warn("pid file of an earlier containerd is not readable; ignored", "file", o.pidFile())
		return nil
	}
	// The descriptor is opened before the check: what is checked is what is signalled.
	pidfd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("leftover containerd, pid %d: %w", id.PID, err)
	}
	defer unix.Close(pidfd)
	if !id.alive() {
		return nil
	}
	o.Logger.Warn("ending the containerd that an earlier supervisor left", "pid", id.PID)
	for _, step := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, o.StopTimeout}, {unix.SIGKILL, killWait}} {
		if err := unix.PidfdSendSignal(pidfd, step.signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end leftover containerd, pid %d: %w", id.PID, err)
		}
		if pidfdEnded(pidfd, step.wait) {
			return nil
		}
	}
	return fmt.Errorf("leftover containerd, pid %d, does not end even by SIGKILL: it is stuck in the kernel; see /proc/%d/stack, or restart the host", id.PID, id.PID)
}

// pidfdEnded waits until the process has ended. A zombie, whose parent is yet to
// collect it, has ended too.
func pidfdEnded(pidfd int, wait time.Duration) bool {
	deadline := time.Now().Add(wait)
	for {
		left := time.Until(deadline)
		if left < 0 {
			return false
		}
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// startTicks reads when a process was started, in clock ticks since boot.
func startTicks(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may hold anything;
	// what follows the last parenthesis starts with field 3.
	s := string(data)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// readExe names a process's executable, also after the file was replaced by a newer
// build.
func readExe(pid int) (string, error) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return strings.TrimSuffix(exe, " (deleted)"), err
}
