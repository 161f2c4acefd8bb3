package api

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxDescriptors is what one message of a unix socket carries: SCM_MAX_FD of Linux.
const maxDescriptors = 253

// descriptorConn is a server's connection that keeps the descriptors which arrive between
// the bytes. What nobody took is closed with it.
type descriptorConn struct {
	*net.UnixConn
	mu    sync.Mutex
	files []*os.File
	oob   [maxDescriptors*4 + unix.SizeofCmsghdr]byte // used by Read alone
}

var errTooManyDescriptors = errors.New("more descriptors than one request may hold")

func (c *descriptorConn) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(p, c.oob[:])
	if oobn > 0 {
		if kerr := c.keep(c.oob[:oobn]); kerr != nil {
			return 0, kerr
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, errTooManyDescriptors
	}
	if errors.Is(err, io.EOF) {
		err = io.EOF // bare, as readers expect it
	}
	return max(n, 0), err // it is -1 with an error, which a Reader's never is
}

func (c *descriptorConn) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // credentials and the like
		}
		for _, fd := range fds {
			c.files = append(c.files, os.NewFile(uintptr(fd), "input"))
		}
	}
	if len(c.files) > maxDescriptors {
		return errTooManyDescriptors
	}
	return nil
}

// take hands over what has arrived; the caller closes the files.
func (c *descriptorConn) take() []*os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.files
	c.files = nil
	return files
}

func (c *descriptorConn) Close() error {
	for _, f := range c.take() {
		f.Close()
	}
	return c.UnixConn.Close()
}

// descriptorListener makes every connection a descriptorConn.
type descriptorListener struct{ *net.UnixListener }

func (l descriptorListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &descriptorConn{UnixConn: c}, nil
}

// sendingConn is a client's connection that sends files along with its first byte.
type sendingConn struct {
	*net.UnixConn
	files []*os.File // the caller's
}

func (c *sendingConn) Write(p []byte) (int, error) {
	if len(c.files) == 0 || len(p) == 0 {
		return c.UnixConn.Write(p)
	}
	fds := make([]int, len(c.files))
	for i, f := range c.files {
		fds[i] = int(f.Fd())
	}
	n, _, err := c.WriteMsgUnix(p, unix.UnixRights(fds...), nil)
	c.files = nil
	if err == nil && n < len(p) {
		var m int
		m, err = c.UnixConn.Write(p[n:])
		n += m
	}
	return n, err
}
