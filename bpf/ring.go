package bpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// errRing says that a ring's own bookkeeping makes no sense.
var errRing = errors.New("ring buffer is inconsistent")

// A ring reads a BPF ring buffer in batches. The ringbuf package reads one record at a
// time, spins while one is being written (a task of the run can be stopped in the middle
// of that, and would have us burn its share), and keeps a thread in a poll. The data is mapped
// for as long as it is read: what is mapped counts as the supervisor's memory, and most rings
// are empty most of the time.
type ring struct {
	m    *ebpf.Map // stays the caller's, who closes it after the ring
	file *os.File  // of the map, for the runtime's poller
	conn syscall.RawConn
	cons []byte // the reader's position
	prod []byte // the writer's position
	page int
	mask uint64
}

// window is how much of the data is mapped at once at most, in bytes. No record is larger.
const window = 1 << 20

func openRing(m *ebpf.Map) (_ *ring, err error) {
	r := &ring{m: m, page: os.Getpagesize(), mask: uint64(m.MaxEntries()) - 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.cons, err = unix.Mmap(m.FD(), 0, r.page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map reader's page: %w", err)
	}
	if r.prod, err = unix.Mmap(m.FD(), int64(r.page), r.page, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map writer's page: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate ring: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or NewFile won't poll it
		return nil, errors.Join(fmt.Errorf("duplicate ring: %w", err), unix.Close(fd))
	}
	r.file = os.NewFile(uintptr(fd), "ring")
	if r.conn, err = r.file.SyscallConn(); err != nil {
		return nil, err
	}
	if err := r.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("poll ring: %w", err)
	}
	return r, nil
}

func (r *ring) close() error {
	var errs []error
	if r.file != nil {
		errs = append(errs, r.file.Close())
	}
	for _, m := range [][]byte{r.prod, r.cons} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	r.prod, r.cons = nil, nil
	return errors.Join(errs...)
}

func (r *ring) consumed() *uint64 { return (*uint64)(unsafe.Pointer(&r.cons[0])) }
func (r *ring) produced() *uint64 { return (*uint64)(unsafe.Pointer(&r.prod[0])) }

func (r *ring) size() uint64 { return r.mask + 1 }

// waiting returns the bytes that are in the ring.
func (r *ring) waiting() uint64 {
	return atomic.LoadUint64(r.produced()) - atomic.LoadUint64(r.consumed())
}

// wait returns after d, or when the programs say that the ring fills fast, or when ctx
// ends, which is its error.
func (r *ring) wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := r.file.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { r.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	woken := false
	err := r.conn.Read(func(uintptr) bool {
		defer func() { woken = true }()
		return woken
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return ctx.Err()
}

// read hands up to max records to take, in the order they were reserved, and frees their
// room. A slice is valid during the call only.
func (r *ring) read(max int, take func([]byte)) (n int, err error) {
	for n < max {
		got, err := r.readWindow(max-n, take)
		n += got
		if got == 0 || err != nil {
			return n, err
		}
	}
	return n, nil
}

// readWindow reads what begins within one window.
func (r *ring) readWindow(max int, take func([]byte)) (n int, err error) {
	const freeEvery = 64 // records: the writers shall not wait for the whole batch
	cons, prod := atomic.LoadUint64(r.consumed()), atomic.LoadUint64(r.produced())
	if cons >= prod {
		return 0, nil
	}
	if prod-cons > r.size() {
		return 0, errRing
	}
	// Behind the writer's page the data lies twice over, so that no record wraps.
	skip := int(cons&r.mask) % r.page
	end := min(prod, cons+window)
	data, err := unix.Mmap(r.m.FD(), int64(2*r.page+int(cons&r.mask)-skip), skip+int(end-cons), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map data: %w", err)
	}
	defer func() {
		atomic.StoreUint64(r.consumed(), cons)
		err = errors.Join(err, unix.Munmap(data))
	}()

	for first := cons - uint64(skip); n < max && cons < end; {
		at := cons - first
		// The kernel clears the busy bit with an exchange after the record is written.
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&data[at])))
		if head&unix.BPF_RINGBUF_BUSY_BIT != 0 {
			return n, nil
		}
		size := uint64(head &^ unix.BPF_RINGBUF_DISCARD_BIT)
		next := cons + (unix.BPF_RINGBUF_HDR_SZ+size+7)&^7
		if next > prod {
			return n, errRing
		}
		if next > end {
			if n == 0 {
				return n, errRing // larger than a window
			}
			return n, nil
		}
		if head&unix.BPF_RINGBUF_DISCARD_BIT == 0 {
			at += unix.BPF_RINGBUF_HDR_SZ
			take(data[at : at+size : at+size])
			n++
		}
		cons = next
		if n%freeEvery == 0 {
			atomic.StoreUint64(r.consumed(), cons)
		}
	}
	return n, nil
}
