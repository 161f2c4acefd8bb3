package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const shimName = "containerd-shim-runc-v2"

// endShim ends the shim of a box that containerd does not know of: it was killed between
// starting the shim and writing that down. It is told by its whole command line, which has
// the instance's namespace and the box's id, and ended by a descriptor of the process that
// was looked at.
func (r *Runtime) endShim(id string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !r.isShim(pid, id) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("shim %d: %w", pid, err))
			continue
		}
		// The number may have become another's before it was opened.
		if r.isShim(pid, id) {
			r.Logger.Warn("ending a shim that containerd does not know", "run", id, "pid", pid)
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("shim %d: %w", pid, err))
			}
		}
		unix.Close(fd)
	}
	return errors.Join(errs...)
}

func (r *Runtime) isShim(pid int, id string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false // gone, or a kernel thread
	}
	args := bytes.Split(data, []byte{0})
	if filepath.Base(string(args[0])) != shimName {
		return false
	}
	has := func(flag, value string) bool {
		for i := 1; i+1 < len(args); i++ {
			if string(args[i]) == flag && string(args[i+1]) == value {
				return true
			}
		}
		return false
	}
	return has("-namespace", r.Namespace) && has("-id", id)
}
