package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/thread"
	"proctor/testenv"
)

// A clientProcess does tasks, one at a time.
type clientProcess struct {
	in  *json.Encoder
	out *bufio.Reader
}

// newClient starts a client: in the run's network and cgroup, or on the host without a run.
func newClient(b *testing.B, setup clientSetup, in *run) *clientProcess {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(setup)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), clientVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	start := cmd.Start
	if in != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(in.cgroup.Fd())}
		// A process is born in the namespace of the thread that makes it.
		start = func() error {
			return thread.Run(func() error {
				if err := unix.Setns(int(in.netns.Fd()), unix.CLONE_NEWNET); err != nil {
					return err
				}
				return cmd.Start()
			})
		}
	}
	if err := start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &clientProcess{json.NewEncoder(stdin), bufio.NewReader(stdout)}
}

func (c *clientProcess) do(b *testing.B, t task) outcome {
	b.Helper()
	if err := c.in.Encode(t); err != nil {
		b.Fatal(err)
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		b.Fatal(err)
	}
	var o outcome
	if err := json.Unmarshal(line, &o); err != nil {
		b.Fatal(err)
	}
	if o.Error != "" {
		b.Fatal(o.Error)
	}
	return o
}

// startServer starts what listens at an address, returns when it does, and ends it at the
// benchmark's end, or when this process dies.
func startServer(b *testing.B, at netip.AddrPort, name string, args ...string) {
	b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := testenv.Start(cmd); err != nil {
		b.Fatalf("%v: `make bench` installs it", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	deadline := time.After(10 * time.Second)
	for {
		if c, err := net.Dial("tcp", at.String()); err == nil {
			c.Close()
			return
		}
		select {
		case <-ended:
			b.Fatalf("%s ended: %v", name, cmd.ProcessState)
		case <-deadline:
			b.Fatalf("%s does not listen at %v", name, at)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func startSocat(b *testing.B, at netip.AddrPort, flags ...string) {
	b.Helper()
	startServer(b, at, "socat", append(flags,
		fmt.Sprintf("TCP-LISTEN:%d,bind=%v,fork,reuseaddr", at.Port(), at.Addr()), "TCP:"+apiAt.String())...)
}
