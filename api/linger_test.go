package api

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

// lingering is an open file whose close does not return before end is called: one on a FUSE file
// system that does not answer.
func lingering(t *testing.T) (f *os.File, end func()) {
	t.Helper()
	path := filepath.Join(testenv.Dir(t), "f")
	must(t, os.WriteFile(path, nil, 0o600))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Mount("test", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100644,user_id=0,group_id=0", fd)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		answerFUSE(fd)
	}()
	end = func() {
		must(t, unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH)) // breaks off what waits
		<-done
		unix.Close(fd)
	}
	f, err = os.Open(path)
	if err != nil {
		end()
		t.Fatal(err)
	}
	return f, end
}

// answerFUSE lets a file be opened and says nothing when it is closed: linux/fuse.h.
func answerFUSE(fd int) {
	const initialize, getattr, open, flush = 26, 3, 14, 25
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
		case flush:
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

// A caller's file may take for ever to close. The server's end does not wait for it, and the
// connection stays the caller's till then.
func TestServerEndsWhileFilesLingerRoot(t *testing.T) {
	testenv.Root(t)
	before := descriptors(t)
	file, end := lingering(t)
	ended := false
	defer func() {
		if !ended {
			end()
		}
	}()
	var server *Server
	_, c := serveWith(t, func(s *Server) { server = s })
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Socket, Net: "unix"})
	must(t, err)
	defer conn.Close()
	_, err = (&sendingConn{UnixConn: conn, files: []*os.File{file}}).Write([]byte("GET /v1/images HTTP/1.1\r\nHost: x\r\n\r\n"))
	must(t, err)
	_, err = conn.Read(make([]byte, 10)) // no call that takes files: it stays with the connection
	must(t, err)
	go file.Close() // waits, too

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
