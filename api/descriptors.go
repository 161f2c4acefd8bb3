package api

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxDescriptors is what one message of a unix socket carries: SCM_MAX_FD of Linux.
const maxDescriptors = 253

// descriptorConn is a server's connection that keeps the descriptors which arrive between
// the bytes. What nobody took is closed with it. They stay numbers until it is known what they are:
// see [supervisor.NewInput].
type descriptorConn struct {
	*net.UnixConn
	give     func()                               // of the caller's connections
	closing  sync.Once                            // the server closes it more than once
	shedding sync.WaitGroup                       // for who closes what was not taken; not begun once gone
	mine     func(n int64) (give func(), ok bool) // of the caller's descriptors
	mu       sync.Mutex
	files    []int
	gives    []func()                                    // of those that are here
	lent     []func()                                    // of those that were taken
	crowded  bool                                        // some were closed at once: the caller has too many
	gone     bool                                        // closed: what still comes is not taken
	oob      [maxDescriptors*4 + unix.SizeofCmsghdr]byte // used by Read alone
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

// keep takes in what came with some bytes. What it does not take it closes, which may take as long
// as whoever passed it likes: nobody else waits for that, but the connection counts meanwhile.
func (c *descriptorConn) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	c.mu.Lock()
	var surplus []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // credentials and the like
		}
		if give, ok := c.mine(int64(len(fds))); !ok {
			c.crowded = true
			surplus = append(surplus, fds...)
		} else if c.gone {
			give()
			surplus = append(surplus, fds...)
		} else {
			c.gives = append(c.gives, give)
			c.files = append(c.files, fds...)
		}
	}
	if len(c.files) > maxDescriptors {
		err = errTooManyDescriptors
	}
	if !c.gone {
		c.shedding.Add(1)
		defer c.shedding.Done()
	}
	c.mu.Unlock()
	closeAll(surplus)
	return err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// take hands over what has arrived; the caller closes it, and then calls closed.
func (c *descriptorConn) take() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.files
	c.lent = append(c.lent, c.gives...)
	c.files, c.gives = nil, nil
	return files
}

// closed says that what was taken counts no more.
func (c *descriptorConn) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, give := range c.lent {
		give()
	}
	c.lent = nil
}

// wasCrowded reports, once, whether descriptors were not taken in because the caller has too many.
func (c *descriptorConn) wasCrowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.crowded
	c.crowded = false
	return was
}

// Close does not wait for what nobody took: closing a file of the caller's may take as long as that
// likes (a socket that lingers, a FUSE file system), and the server closes one connection after
// another when it ends. Until it is done, the connection counts as one of the caller's.
//
// The same goes for the connection itself, which may hold files that have not been received.
func (c *descriptorConn) Close() error {
	c.closing.Do(func() {
		c.mu.Lock()
		c.gone = true
		c.mu.Unlock()
		shutdown(c.UnixConn)
		files := c.take()
		go func() {
			c.UnixConn.Close()
			closeAll(files)
			c.shedding.Wait()
			c.closed()
			c.give()
		}()
	})
	return nil
}

// shutdown ends a connection for both sides, and for whoever is reading from it.
func shutdown(c *net.UnixConn) {
	_ = c.CloseRead()
	_ = c.CloseWrite()
}

// descriptorListener makes every connection a descriptorConn.
type descriptorListener struct {
	*net.UnixListener
	connections, descriptors *budget
	closers                  *closers
}

// Accept closes what a caller has too many of.
func (l descriptorListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, _, err := credentials(c)
		if err != nil {
			l.closers.close(0, c) // whose it is, is not known
			continue
		}
		if give, ok := l.connections.take(cred.Uid, 1); ok {
			mine := func(n int64) (func(), bool) { return l.descriptors.take(cred.Uid, n) }
			return &descriptorConn{UnixConn: c, give: give, mine: mine}, nil
		}
		l.closers.close(cred.Uid, c)
	}
}

// closers close connections that are not served. That may take long: files that wait in one are
// let go of with it, and a socket among them lingers as long as whoever passed it likes. It holds up
// nobody but the user whose connection it is.
type closers struct {
	mu    sync.Mutex
	queue map[uint32][]*net.UnixConn // by user
	work  map[uint32]int             // goroutines; none is 0
}

func newClosers() *closers {
	return &closers{queue: map[uint32][]*net.UnixConn{}, work: map[uint32]int{}}
}

func (q *closers) close(uid uint32, c *net.UnixConn) {
	shutdown(c)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue[uid] = append(q.queue[uid], c)
	const most, each = 8, 64
	if n := q.work[uid]; n == 0 || n < most && len(q.queue[uid]) > n*each {
		q.work[uid]++
		go q.empty(uid)
	}
}

// lingerMost is how long one file may keep a closer, which is then interrupted: a socket that
// lingers goes on to close by itself.
const lingerMost = 2 * time.Millisecond

func (q *closers) empty(uid uint32) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, tid := os.Getpid(), unix.Gettid()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(lingerMost):
				_ = unix.Tgkill(pid, tid, unix.SIGURG) // which Go takes for nothing at any time
			}
		}
	}()
	for {
		q.mu.Lock()
		waiting := q.queue[uid]
		if len(waiting) == 0 {
			delete(q.queue, uid)
			if q.work[uid]--; q.work[uid] == 0 {
				delete(q.work, uid)
			}
			q.mu.Unlock()
			return
		}
		q.queue[uid] = waiting[1:]
		q.mu.Unlock()
		waiting[0].Close()
	}
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
