package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// Usage is what a group has used since it was made.
type Usage struct {
	CPU        time.Duration
	MemoryPeak int64 // bytes
	PIDsPeak   int64 // 0 where the kernel keeps none
	PIDsHit    int64 // forks refused for the limit
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
	name := "memory.max_usage_in_bytes"
	if v2 {
		name = "memory.peak" // Linux 5.19
	}
	n, err := readInt(filepath.Join(dir, name))
	read(&u.MemoryPeak, n, err)

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
