package api

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

// lingering is a descriptor whose close does not return before end is called: one on a FUSE file
// system that does not answer.
func lingering(t *testing.T, flags int) (fd int, end func()) {
	t.Helper()
	path := filepath.Join(testenv.Dir(t), "f")
	must(t, os.WriteFile(path, nil, 0o600))
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	device := os.NewFile(uintptr(fuse), "/dev/fuse")
	defer device.Close()
	must(t, unix.Mount("test", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100644,user_id=0,group_id=0", fuse)))
	// Another process: this one could not answer what its own runtime waits for.
	self, err := os.Executable()
	must(t, err)
	daemon := exec.Command(self)
	daemon.Env, daemon.ExtraFiles, daemon.Stderr = append(os.Environ(), fuseVariable+"=1"), []*os.File{device}, os.Stderr
	must(t, daemon.Start()) // it ends by itself
	end = func() {
		must(t, unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH)) // breaks off what waits
		must(t, daemon.Wait())
	}
	fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		end()
		t.Fatal(err)
	}
	return fd, end
}

// fuseVariable says that this binary is to answer on its descriptor 3, instead of testing.
const fuseVariable = "PROCTOR_API_FUSE"

// fusePatience is after how long the file system is gone in any case.
const fusePatience = 40 * time.Second

// answerFUSE lets a file be opened and says nothing when it is closed or polled: linux/fuse.h.
func answerFUSE(fd int) {
	const initialize, getattr, open, flush, poll = 26, 3, 14, 25, 40
	time.AfterFunc(fusePatience, func() { os.Exit(1) })
	request := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, request)
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return // unmounted
		}
		answer, le := make([]byte, 16), binary.LittleEndian
		switch le.Uint32(request[4:]) {
		case initialize:
			answer = append(answer, make([]byte, 64)...)
			le.PutUint32(answer[16:], 7)
			le.PutUint32(answer[20:], 31)
			le.PutUint32(answer[16+20:], 4096)
		case getattr:
			answer = append(answer, make([]byte, 104)...)
			le.PutUint64(answer[16+16:], 1)
			le.PutUint32(answer[16+16+60:], unix.S_IFREG|0o644)
			le.PutUint32(answer[16+16+64:], 1)
		case open:
			answer = append(answer, make([]byte, 16)...)
		case flush, poll:
			continue
		default:
			errno := -int32(unix.ENOSYS)
			le.PutUint32(answer[4:], uint32(errno))
		}
		le.PutUint32(answer, uint32(len(answer)))
		copy(answer[8:16], request[8:16])
		_, _ = unix.Write(fd, answer)
	}
}

// sendAlong begins a call with a descriptor that no such call takes.
func sendAlong(t *testing.T, c *Client, file int) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Socket, Net: "unix"})
	must(t, err)
	_, _, err = conn.WriteMsgUnix([]byte("GET /v1/images HTTP/1.1\r\nHost: x\r\n\r\n"), unix.UnixRights(file), nil)
	must(t, err)
	return conn
}

// A caller's file may take for ever to close. The server's end does not wait for it, and the
// connection stays the caller's till then.
func TestServerEndsWhileFilesLingerRoot(t *testing.T) {
	testenv.Root(t)
	before := descriptors(t)
	file, end := lingering(t, unix.O_RDONLY)
	ended := false
	defer func() {
		if !ended {
			end()
		}
	}()
	var server *Server
	_, c := serveWith(t, func(s *Server) { server = s })
	conn := sendAlong(t, c, file)
	defer conn.Close()
	_, err := conn.Read(make([]byte, 10)) // no call that takes files: it stays with the connection
	must(t, err)
	go unix.Close(file) // waits, too

	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	select {
	case err := <-stopped:
		must(t, err)
	case <-time.After(5 * time.Second):
		t.Error("the server does not end")
	}
	uid := uint32(os.Getuid())
	if used := server.connections.of(uid); used != 1 {
		t.Errorf("%d connections are counted while one is being closed", used)
	}
	conn.Close()
	end()
	ended = true
	closedSoon(t, before)
	for deadline := time.Now().Add(5 * time.Second); server.connections.of(uid) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is counted for ever")
		}
	}
}

// A file on a FUSE file system that is in non-blocking mode, and says nothing to who polls it, does
// not stop the runtime.
func TestFilesAreNotPolledRoot(t *testing.T) {
	testenv.Root(t)
	file, end := lingering(t, unix.O_RDONLY|unix.O_NONBLOCK)
	ended := make(chan struct{})
	defer func() { <-ended }()
	defer func() { go func() { defer close(ended); end() }() }()
	_, c := serveWith(t, func(*Server) {})
	began := time.Now()
	conn := sendAlong(t, c, file)
	defer conn.Close()
	go unix.Close(file) // waits for an answer
	runtime.GC()
	_, err := conn.Read(make([]byte, 10))
	must(t, err)
	runtime.GC()
	if took := time.Since(began); took > fusePatience/2 {
		t.Errorf("all stood still for %s", took)
	}
}

// What a caller has too many of may take for ever to close, too.
func TestServerEndsWhileSurplusLingersRoot(t *testing.T) {
	testenv.Root(t)
	file, end := lingering(t, unix.O_RDONLY)
	ended := false
	defer func() {
		if !ended {
			end()
		}
	}()
	var server *Server
	_, c := serveWith(t, func(s *Server) { server = s; s.descriptors = newBudget(0, 0) })
	conn := sendAlong(t, c, file)
	defer conn.Close()
	go unix.Close(file) // waits, too
	uid := uint32(os.Getuid())
	for deadline := time.Now().Add(10 * time.Second); server.connections.of(uid) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not taken in")
		}
	}
	time.Sleep(100 * time.Millisecond) // it is being closed
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(ctx) }()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("the server does not end")
	}
	if used := server.connections.of(uid); used != 1 {
		t.Errorf("%d connections are counted while something of one is being closed", used)
	}
	end()
	ended = true
	for deadline := time.Now().Add(10 * time.Second); server.connections.of(uid) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is counted for ever")
		}
	}
}

// stuck is a TCP socket that lingers for long when the last of it is closed.
func stuck(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer c.Close()
	peer, err := l.Accept() // reads nothing
	must(t, err)
	t.Cleanup(func() { peer.Close() })
	must(t, c.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	for err == nil {
		_, err = c.Write(make([]byte, 1<<20))
	}
	f, err := c.(*net.TCPConn).File()
	must(t, err)
	must(t, unix.SetsockoptLinger(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
	return f
}

// A connection that is not served may hold sockets that linger. Nobody waits for them, and in the end
// they are gone.
func TestUnservedConnectionsMayLinger(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(testenv.Dir(t), "s"), Net: "unix"})
	must(t, err)
	defer l.Close()
	dial := func() *net.UnixConn {
		t.Helper()
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		must(t, err)
		return c
	}
	listener := descriptorListener{l, newBudget(1, 100), newBudget(1000, 1000), newClosers()}
	first := dial()
	defer first.Close()
	served, err := listener.Accept()
	must(t, err)
	for range 3 {
		c, f := dial(), stuck(t)
		_, _, err := c.WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil)
		must(t, err)
		must(t, f.Close())
		must(t, c.Close())
	}
	accepted := make(chan net.Conn)
	go func() {
		c, _ := listener.Accept() // those three come before it
		accepted <- c
	}()
	time.Sleep(100 * time.Millisecond)
	must(t, served.Close())
	for deadline := time.Now().Add(20 * time.Second); ; {
		c := dial()
		defer c.Close()
		select {
		case conn := <-accepted:
			must(t, conn.Close())
		case <-time.After(50 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("nobody else is served")
			}
			continue
		}
		break
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		listener.closers.mu.Lock()
		n := len(listener.closers.queue) + len(listener.closers.work)
		listener.closers.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("they are not closed")
		}
	}
}
