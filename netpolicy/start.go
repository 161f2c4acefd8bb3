package netpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/wire"
)

// GatewayOptions of [StartGateway].
type GatewayOptions struct {
	// Binary is proctor-gateway.
	Binary string
	// Config is what it is told. UID and Sockets are filled in.
	Config wire.Config
	// Sockets are given to it, and closed here.
	Sockets []Socket
	// Report is called with what it tells, one at a time, but for signs of life.
	Report func(wire.Report)
}

// A Gateway is a process that answers for all the world in one run's network namespace.
type Gateway struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	ca      []byte
	output  tail

	reading sync.WaitGroup
	failed  chan error // one, when it ended and should not have
	done    chan struct{}
	gone    chan struct{} // closed when the process is
}

// startTimeout bounds how long a gateway may take to serve.
const startTimeout = 10 * time.Second

// uids are of users that nobody else is: below those of boxes, and one for each gateway.
const (
	firstUID = 0x3f000000
	uids     = 0x00ffffff
)

// StartGateway starts a gateway and returns when it serves its sockets. Whoever calls it
// calls Close.
func StartGateway(ctx context.Context, o GatewayOptions) (_ *Gateway, err error) {
	defer func() {
		for _, s := range o.Sockets {
			s.File.Close()
		}
		if err != nil {
			err = fmt.Errorf("gateway: %w", err)
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "gateway"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	g := &Gateway{control: conn.(*net.UnixConn), failed: make(chan error, 1), done: make(chan struct{}), gone: make(chan struct{})}

	g.cmd = exec.Command(o.Binary)
	// One processor: what one run asks of its network takes no more from the others, and a
	// request that waits for none of the gateway's own threads costs a fifth less. A small heap is
	// collected often: where a request costs 200 µs, that is a tenth of them.
	g.cmd.Env = []string{"GOMAXPROCS=1", "GOMEMLIMIT=192MiB", "GOGC=400", "GOTRACEBACK=none"}
	g.cmd.Dir = "/"
	g.cmd.Stderr = &g.output
	g.cmd.ExtraFiles = []*os.File{theirs}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	o.Config.UID = firstUID + rand.Uint32N(uids)
	o.Config.Sockets = nil
	for _, s := range o.Sockets {
		g.cmd.ExtraFiles = append(g.cmd.ExtraFiles, s.File)
		o.Config.Sockets = append(o.Config.Sockets, wire.Socket{Protocol: s.Protocol, Family: s.Family, Port: s.Port})
	}
	started := make(chan error, 1)
	go func() {
		// The end of a thread is for the kernel the end of the parent of what it started. This
		// one lives as long as the process.
		runtime.LockOSThread()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			_ = g.cmd.Wait() // that it ended is seen on the control socket
			close(g.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, g.control.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()

	deadline := time.Now().Add(startTimeout)
	if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
		deadline = until
	}
	if err := g.control.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if err := wire.WriteConfig(g.control, &o.Config); err != nil {
		return nil, g.explain(err)
	}
	reports := wire.NewReader(g.control)
	first, err := reports.Read()
	if err != nil {
		return nil, g.explain(err)
	}
	if first.Ready == nil {
		return nil, errors.New("it reports before it is ready")
	}
	g.ca = first.Ready.CA
	if err := g.control.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	g.reading.Go(func() { g.read(reports, o.Report) })
	return g, nil
}

// explain adds what a gateway that died had to say.
func (g *Gateway) explain(err error) error {
	if said := g.output.String(); said != "" {
		return fmt.Errorf("%w: it said %q", err, said)
	}
	return err
}

// read passes on reports until the last.
func (g *Gateway) read(reports *wire.Reader, report func(wire.Report)) {
	defer close(g.done)
	for {
		if err := g.control.SetReadDeadline(time.Now().Add(wire.Stalled)); err != nil {
			g.failed <- err
			return
		}
		r, err := reports.Read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			g.failed <- fmt.Errorf("the gateway has said nothing for %v", wire.Stalled)
			return
		case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
			g.failed <- g.explain(errors.New("the gateway ended"))
			return
		case err != nil:
			g.failed <- fmt.Errorf("the gateway: %w", err)
			return
		case r.Query != nil, r.Flow != nil, r.Scrub != nil:
			report(r)
		case r.Done != nil:
			report(r)
			return
		}
	}
}

// CA is the certificate of the run's own authority, in PEM; empty where there is none.
func (g *Gateway) CA() []byte { return g.ca }

// Failed gives an error when the gateway ended by itself, or stalled.
func (g *Gateway) Failed() <-chan error { return g.failed }

// Finish has the gateway end every connection and returns when it has told of all of them,
// or with an error at ctx's end. It is called once, when the run's processes are dead.
func (g *Gateway) Finish(ctx context.Context) error {
	if err := g.control.CloseWrite(); err != nil && !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.EPIPE) {
		return err
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		return fmt.Errorf("the gateway does not end: %w", ctx.Err())
	}
	select {
	case err := <-g.failed:
		return err
	default:
		return nil
	}
}

// Close ends the process and returns when it is gone, and nothing more is reported.
func (g *Gateway) Close() error {
	var errs []error
	if err := g.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		errs = append(errs, err)
	}
	<-g.gone
	errs = append(errs, g.control.Close())
	g.reading.Wait()
	if err := errors.Join(errs...); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// A tail keeps the end of what a process prints.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailBytes {
		t.buf = t.buf[len(t.buf)-tailBytes:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
