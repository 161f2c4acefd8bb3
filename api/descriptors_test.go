package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/testenv"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect is the two ends of one call: the client's and the server's.
func connect(t *testing.T) (*net.UnixConn, *descriptorConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(testenv.Dir(t), "s"), Net: "unix"})
	must(t, err)
	defer l.Close()
	client, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	must(t, err)
	t.Cleanup(func() { client.Close() })
	server, err := descriptorListener{l, newBudget(100, 100), newBudget(1000, 1000), newClosers()}.Accept()
	must(t, err)
	t.Cleanup(func() { server.Close() })
	server.SetDeadline(time.Now().Add(20 * time.Second))
	return client, server.(*descriptorConn)
}

// inputs are n open files that say which they are.
func inputs(t *testing.T, n int) []*os.File {
	t.Helper()
	dir := t.TempDir()
	var files []*os.File
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.WriteFile(path, fmt.Append(nil, i), 0o600))
		f, err := os.Open(path)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func TestDescriptorsArrive(t *testing.T) {
	for _, n := range []int{0, 1, 2, 250, maxDescriptors} {
		client, server := connect(t)
		files := inputs(t, n)
		send := &sendingConn{UnixConn: client, files: files}
		message := strings.Repeat("m", 1_000_000) // more than the socket holds at once
		sent := make(chan error, 1)
		go func() {
			m, err := send.Write([]byte(message))
			if err == nil && m != len(message) {
				err = fmt.Errorf("%d bytes written", m)
			}
			if err == nil {
				_, err = send.Write([]byte("second"))
			}
			client.CloseWrite()
			sent <- err
		}()
		data, err := io.ReadAll(server)
		must(t, err)
		must(t, <-sent)
		if string(data) != message+"second" {
			t.Errorf("with %d files: %d bytes arrived", n, len(data))
		}
		got := server.take()
		if len(got) != n {
			t.Fatalf("%d files of %d arrived", len(got), n)
		}
		for i, fd := range got {
			f := os.NewFile(uintptr(fd), "passed")
			content, err := io.ReadAll(f)
			if err != nil || string(content) != fmt.Sprint(i) {
				t.Errorf("file %d of %d holds %q, %v", i, n, content, err)
			}
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("file %d would be inherited by every child", i)
			}
			f.Close()
		}
		if again := server.take(); len(again) != 0 {
			t.Errorf("%d files are handed out again", len(again))
		}
		for i, f := range files {
			if _, err := f.Stat(); err != nil {
				t.Errorf("the caller's file %d: %v", i, err)
			}
		}
	}
}

// closedSoon fails if more than so many are open, and stay so.
func closedSoon(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		n := descriptors(t)
		if n <= before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d descriptors are open, %d were before", n, before)
		}
	}
}

func TestDescriptorsNotTakenAreClosed(t *testing.T) {
	files := inputs(t, 100)
	before := descriptors(t)
	client, server := connect(t)
	_, err := (&sendingConn{UnixConn: client, files: files}).Write([]byte("x"))
	must(t, err)
	_, err = server.Read(make([]byte, 10))
	must(t, err)
	if n := descriptors(t); n < before+100 {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	must(t, server.Close())
	client.Close()
	closedSoon(t, before)
}

// Descriptors may come with any byte, but not in any number.
func TestTooManyDescriptors(t *testing.T) {
	files := inputs(t, 250)
	before := descriptors(t)
	client, server := connect(t)
	var err error
	for range 2 {
		_, err = (&sendingConn{UnixConn: client, files: files}).Write([]byte("x"))
		must(t, err)
		_, err = server.Read(make([]byte, 1))
	}
	if !errors.Is(err, errTooManyDescriptors) {
		t.Errorf("500 are taken: %v", err)
	}
	server.Close()
	client.Close()
	closedSoon(t, before)
}

// More than one read has room for, or than the process may have: the kernel drops some, and
// the call with them.
func TestDescriptorsCutOff(t *testing.T) {
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	files := inputs(t, 50)
	before := descriptors(t)
	client, server := connect(t)
	_, err := (&sendingConn{UnixConn: client, files: files}).Write([]byte("x"))
	must(t, err)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(descriptors(t) + 10), Max: old.Max}))
	_, err = server.Read(make([]byte, 1))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	if !errors.Is(err, errTooManyDescriptors) {
		t.Errorf("got %v", err)
	}
	server.Close()
	client.Close()
	closedSoon(t, before)
}

// It reads as a Reader must.
func TestDescriptorConnErrors(t *testing.T) {
	client, server := connect(t)
	server.SetReadDeadline(time.Now().Add(-time.Second))
	if n, err := server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("too late: %d, %v", n, err)
	}
	server.SetReadDeadline(time.Time{})
	client.Close()
	if _, err := server.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // readers compare
		t.Errorf("got %v", err)
	}
}

func TestSendingConnWritesNothingFirst(t *testing.T) {
	client, server := connect(t)
	send := &sendingConn{UnixConn: client, files: inputs(t, 1)}
	if n, err := send.Write(nil); n != 0 || err != nil {
		t.Errorf("an empty write: %d, %v", n, err)
	}
	_, err := send.Write([]byte("x"))
	must(t, err)
	_, err = server.Read(make([]byte, 1))
	must(t, err)
	if got := server.take(); len(got) != 1 {
		t.Errorf("%d files", len(got))
	} else {
		closeAll(got)
	}
}
