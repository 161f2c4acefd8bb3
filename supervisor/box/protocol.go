package box

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The other side of init/protocol.h.
const (
	goMagic  = 0x31474f50
	goMax    = 4 << 20
	cpuWords = 16
)

type goHeader struct {
	Magic  uint32
	Length uint32
	Argc   uint32
	Envc   uint32
	CPUs   [cpuWords]uint64
}

type reportKind uint32

const (
	reportReady reportKind = 1 + iota
	reportStarted
	reportFailed
	reportExited
)

type step uint32

var stepNames = map[step]string{
	1: "read the go message",
	2: "fork",
	3: "set up stdin, stdout and stderr",
	4: "enter the working directory",
	5: "exec",
}

type report struct {
	Kind   reportKind
	Detail step
	Value  int64
}

// StartError is why the program in a box did not start.
type StartError struct {
	Step  string
	Errno syscall.Errno
	Path  string // argv[0]
}

func (e *StartError) Error() string {
	return fmt.Sprintf("start %q: %s: %v", e.Path, e.Step, e.Errno)
}

func (e *StartError) Unwrap() error { return e.Errno }

// CPUSet is the processors a program is shown, as sched_setaffinity(2) takes them. The
// zero value changes nothing.
type CPUSet [cpuWords]uint64

// Set adds processor n; numbers past the set's size are ignored.
func (s *CPUSet) Set(n int) {
	if n >= 0 && n < cpuWords*64 {
		s[n/64] |= 1 << (n % 64)
	}
}

// Control is the supervisor's end of the conversation with a box's init. Close ends
// everything in the box.
type Control struct {
	conn *net.UnixConn
	path string // argv[0] of the program, for errors
}

// NewControl waits for init to say that it is ready. It takes conn over, also on error.
// The caller sets deadlines on conn.
func NewControl(conn *net.UnixConn) (*Control, error) {
	c := &Control{conn: conn}
	r, err := c.read()
	if err == nil && r.Kind != reportReady {
		err = fmt.Errorf("init said %d before it was ready", r.Kind)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("box init: %w", err)
	}
	return c, nil
}

// Close lets go of init, which then ends the box.
func (c *Control) Close() error { return c.conn.Close() }

// ErrTooLong is a command line that a box's init does not take.
var ErrTooLong = errors.New("arguments and environment are too long")

// Go sends the program to init.
func (c *Control) Go(p Program, cpus CPUSet) error {
	var text bytes.Buffer
	for _, list := range [][]string{{p.Dir}, p.Argv, p.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return fmt.Errorf("%q: a NUL byte can't be passed to a program", s)
			}
			text.WriteString(s)
			text.WriteByte(0)
		}
	}
	if text.Len() > goMax {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, text.Len(), goMax)
	}
	if len(p.Argv) == 0 {
		return errors.New("no program to start")
	}
	c.path = p.Argv[0]
	head := goHeader{
		Magic:  goMagic,
		Length: uint32(text.Len()),
		Argc:   uint32(len(p.Argv)),
		Envc:   uint32(len(p.Env)),
		CPUs:   cpus,
	}
	var msg bytes.Buffer
	if err := binary.Write(&msg, binary.NativeEndian, head); err != nil {
		return err
	}
	msg.Write(text.Bytes())
	rights := unix.UnixRights(int(p.Stdio[0].Fd()), int(p.Stdio[1].Fd()), int(p.Stdio[2].Fd()))
	n, _, err := c.conn.WriteMsgUnix(msg.Bytes(), rights, nil)
	if err == nil && n < msg.Len() {
		_, err = c.conn.Write(msg.Bytes()[n:])
	}
	if err != nil {
		return fmt.Errorf("box init: %w", err)
	}
	return nil
}

// Wait reads init's reports until the program's end. started is called with the
// program's process number inside the box; it may not be called at all when the
// program did not start.
func (c *Control) Wait(started func(pid int)) (Exit, error) {
	var failed *StartError
	for {
		r, err := c.read()
		if err != nil {
			if failed != nil {
				return Exit{Err: failed}, nil
			}
			return Exit{}, err
		}
		switch r.Kind {
		case reportStarted:
			started(int(r.Value))
		case reportFailed:
			failed = &StartError{Step: stepNames[r.Detail], Errno: syscall.Errno(r.Value), Path: c.path}
		case reportExited:
			if failed != nil {
				return Exit{Err: failed}, nil
			}
			ws := syscall.WaitStatus(r.Value)
			switch {
			case ws.Signaled():
				return Exit{Signal: int(ws.Signal())}, nil
			case ws.Exited():
				return Exit{Code: ws.ExitStatus()}, nil
			}
			return Exit{}, fmt.Errorf("box init: status %#x is no end", r.Value)
		default:
			return Exit{}, fmt.Errorf("box init: unknown report %d", r.Kind)
		}
	}
}

func (c *Control) read() (report, error) {
	var buf [unsafe.Sizeof(report{})]byte
	if _, err := io.ReadFull(c.conn, buf[:]); err != nil {
		return report{}, err
	}
	var r report
	_, err := binary.Decode(buf[:], binary.NativeEndian, &r)
	return r, err
}
