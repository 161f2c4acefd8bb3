package supervisor

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// streams are the program's stdin, stdout and stderr: pipes of the supervisor's own, so
// that nothing of the caller's enters a box.
type streams struct {
	inside         [3]*os.File
	outside        [2]*os.File
	stdout, stderr *capture
	reading        sync.WaitGroup
}

func newStreams(limit int64) (_ *streams, err error) {
	st := &streams{stdout: newCapture(limit), stderr: newCapture(limit)}
	defer func() {
		if err != nil {
			st.close()
			err = fmt.Errorf("standard streams: %w", err)
		}
	}()
	var stdin *os.File
	if st.inside[0], stdin, err = pipe(); err != nil {
		return nil, err
	}
	stdin.Close() // the program reads an end of file
	for i := range st.outside {
		if st.outside[i], st.inside[i+1], err = pipe(); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// pipe is os.Pipe with a blocking write end, as programs expect it, and a read end that a
// Close wakes up.
func pipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	// The two ends are two open files: this is not seen at the other.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// follow starts reading, which wait joins, and has what is read told.
func (st *streams) follow(telling *telling) {
	for i, c := range []*capture{st.stdout, st.stderr} {
		st.reading.Go(func() { c.read(st.outside[i]) })
	}
	telling.follow(st.stdout, telling.obs.Stdout)
	telling.follow(st.stderr, telling.obs.Stderr)
}

func (st *streams) wait() { st.reading.Wait() }

func (st *streams) closeInside() {
	for i, f := range st.inside {
		if f != nil {
			f.Close()
			st.inside[i] = nil
		}
	}
}

func (st *streams) closeOutside() {
	for _, f := range st.outside {
		if f != nil {
			f.Close()
		}
	}
}

func (st *streams) close() {
	st.closeInside()
	st.closeOutside()
}

// writerFunc makes one of an observer's methods a writer.
type writerFunc func(p []byte) error

func (f writerFunc) Write(p []byte) (int, error) {
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
