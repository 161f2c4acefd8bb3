package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// killWait bounds the wait for a process that was sent SIGKILL; only one stuck in the
// kernel needs longer.
const killWait = 5 * time.Second

// A child is one containerd process.
type child struct {
	cmd    *exec.Cmd
	log    *logPipe
	exited chan struct{} // closed when the process was collected and its log read
	err    error         // its exit status, valid after exited
}

// spawn starts containerd. The caller's goroutine must stay locked to its thread
// until the child has ended: the kernel ties Pdeathsig to the thread.
func (o Options) spawn() (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd := exec.Command(o.Binary, "--config", o.configFile())
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Env = []string{
		"PATH=" + filepath.Dir(o.Binary) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// A Ctrl-C at the supervisor's terminal must not end containerd before the
		// supervisor has ended its runs.
		Setpgid:   true,
		Pdeathsig: syscall.SIGTERM,
	}
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	c := &child{cmd: cmd, log: &logPipe{log: o.Logger.With("component", "containerd")}, exited: make(chan struct{})}
	logRead := make(chan struct{})
	go func() {
		defer close(logRead)
		c.log.copy(r)
	}()
	go func() {
		defer close(c.exited)
		c.err = cmd.Wait()
		// A short-lived helper of containerd's may hold the pipe a little longer.
		_ = r.SetReadDeadline(time.Now().Add(time.Second))
		<-logRead
		r.Close()
	}()
	if id, err := identify(cmd.Process.Pid, o.configFile()); err == nil {
		err = id.write(o.pidFile())
		if err != nil {
			c.end(0, nil)
			return nil, fmt.Errorf("write containerd's pid file: %w", err)
		}
	} // else it has ended already, which the caller is about to notice
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// exit is how the process ended.
func (c *child) exit() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}

// startError is exit with the last complaints, which say why a start didn't succeed.
func (c *child) startError() error {
	return errors.New(strings.Join(append([]string{c.exit()}, c.log.complaints()...), ": "))
}

// end asks the process to go, and kills it after the grace time or when hurry is
// closed. It reports whether the process is gone.
func (c *child) end(grace time.Duration, hurry <-chan struct{}) bool {
	if grace > 0 {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.exited:
			return true
		case <-timer.C:
		case <-hurry:
		}
	}
	_ = c.cmd.Process.Kill()
	select {
	case <-c.exited:
		return true
	case <-time.After(killWait):
		return false
	}
}
