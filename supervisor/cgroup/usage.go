package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Usage is what a group has used since it was made.
type Usage struct {
	CPU        time.Duration
	MemoryPeak int64 // bytes
	PIDsPeak   int64 // 0 where the kernel keeps none
	PIDsHit    int64 // forks refused for the limit
	OOMKills   int64 // processes ended for the memory limit
}

// Usage reads the counters of group.
func (h Host) Usage(group string) (Usage, error) {
	var u Usage
	var errs []error
	read := func(into *int64, n int64, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		*into = n
	}

	var cpu int64
	if dir, v2 := h.Controller("cpuacct", group); v2 {
		n, err := readKey(filepath.Join(dir, "cpu.stat"), "usage_usec")
		read(&cpu, n*int64(time.Microsecond), err)
	} else {
		n, err := readInt(filepath.Join(dir, "cpuacct.usage"))
		read(&cpu, n, err)
	}
	u.CPU = time.Duration(cpu)

	dir, v2 := h.Controller("memory", group)
	name, events := "memory.max_usage_in_bytes", "memory.oom_control"
	if v2 {
		name, events = "memory.peak", "memory.events" // Linux 5.19
	}
	n, err := readInt(filepath.Join(dir, name))
	read(&u.MemoryPeak, n, err)
	n, err = readKey(filepath.Join(dir, events), "oom_kill")
	read(&u.OOMKills, n, err)

	dir, _ = h.Controller("pids", group)
	n, err = readKey(filepath.Join(dir, "pids.events"), "max")
	read(&u.PIDsHit, n, err)
	n, err = readInt(filepath.Join(dir, "pids.peak")) // Linux 6.6
	if !errors.Is(err, fs.ErrNotExist) {
		read(&u.PIDsPeak, n, err)
	}
	if len(errs) > 0 {
		return u, fmt.Errorf("usage of cgroup %s: %w", group, errors.Join(errs...))
	}
	return u, nil
}

// LimitTCP bounds the kernel's buffers for TCP of group where they are not part of its
// memory limit: v1 counts them apart, v2 does not.
func (h Host) LimitTCP(group string, bytes int64) error {
	dir, v2 := h.Controller("memory", group)
	if v2 {
		return nil
	}
	err := os.WriteFile(filepath.Join(dir, "memory.kmem.tcp.limit_in_bytes"), []byte(strconv.FormatInt(bytes, 10)), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cgroup %s: %w", group, err)
	}
	return nil
}
