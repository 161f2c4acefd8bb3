// Command kernels is the first process of the machine that scripts/in-kernel boots: it
// mounts what a Debian system has mounted, runs one test binary and says how it ended.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What scripts/in-kernel puts into the root, and makes of the serial ports. The first port
// is the kernel's console.
const (
	jobFile    = "/job" // how the kernel's release begins, then a command; each ended by NUL
	outputPort = "/dev/ttyS1"
	statusPort = "/dev/ttyS2"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "init: %v\n", err) // on the console
	}
	// Restarting is what the machine is told not to do, so this ends it.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func run() error {
	if err := mount(); err != nil {
		return err
	}
	job, err := os.ReadFile(jobFile)
	if err != nil {
		return err
	}
	words := strings.Split(strings.TrimSuffix(string(job), "\x00"), "\x00")
	if len(words) < 2 {
		return fmt.Errorf("%s: no command", jobFile)
	}
	release, err := release()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(release, words[0]) {
		return fmt.Errorf("the kernel is %s, not %s", release, words[0])
	}
	output, err := openPort(outputPort)
	if err != nil {
		return err
	}
	fmt.Fprintf(output, "Linux %s, %d CPUs, cgroup v2 alone\n", release, runtime.NumCPU())
	status, err := execute(words[1:], output)
	if err != nil {
		return err
	}
	if err := closePort(output); err != nil {
		return err
	}
	port, err := openPort(statusPort)
	if err != nil {
		return err
	}
	fmt.Fprintln(port, status)
	return closePort(port)
}

func mount() error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		dir, fstype string
		flags       uintptr
		data        string
	}{
		{"/dev", "devtmpfs", unix.MS_NOSUID, ""},
		{"/proc", "proc", plain, ""},
		{"/sys", "sysfs", plain, ""},
		{"/sys/fs/cgroup", "cgroup2", plain, ""},
		{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fstype, m.dir, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	// As systemd does: a child has the controllers that its parent hands down.
	return os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0)
}

func release() (string, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(uts.Release[:]), nil
}

// openPort opens a serial port that passes bytes on as they are. It is not opened with the
// os package, which would make the tests' standard output non-blocking.
func openPort(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	port := os.NewFile(uintptr(fd), name)
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err == nil {
		mode.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(fd, unix.TCSETS, mode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up %s: %w", name, err), port.Close())
	}
	return port, nil
}

// closePort waits until everything that was written is out.
func closePort(port *os.File) error {
	if err := unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1); err != nil {
		return fmt.Errorf("drain %s: %w", port.Name(), err)
	}
	return port.Close()
}

// execute runs a command and returns its status as a shell gives it. Meanwhile it collects
// the orphans, as is the first process's duty.
func execute(argv []string, output *os.File) (int, error) {
	none, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer none.Close()
	command, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir:   "/tmp",
		Env:   []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "PROCTOR_ROOT_TESTS=1"},
		Files: []*os.File{none, output, output},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", argv[0], err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR), err == nil && pid != command.Pid:
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", argv[0], err)
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}
