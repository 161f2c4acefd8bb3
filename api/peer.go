package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor/access"
)

// A peer is who is at the other end of a connection, as the kernel says, and what it may do.
type peer struct {
	audit.Caller
	groups []uint32 // the first one among them
	access.Access
}

// owns reports whether a run is the peer's own.
func (p *peer) owns(q *audit.Request) bool { return q != nil && q.Caller.UID == p.UID }

func (s *Server) peer(r *http.Request) (*peer, error) {
	conn, ok := r.Context().Value(connKey{}).(*descriptorConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	cred, groups, err := credentials(conn.UnixConn)
	if err != nil {
		return nil, err
	}
	return &peer{audit.Caller{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, groups, s.Callers.For(cred.Uid, groups)}, nil
}

// credentials are who is at the other end of a connection, with all of its groups.
func credentials(conn *net.UnixConn) (cred *unix.Ucred, groups []uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			groups, err = peerGroups(int(fd))
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, append(groups, cred.Gid), nil
}

// peerGroups are the supplementary groups that the other side had when it connected.
func peerGroups(fd int) ([]uint32, error) {
	buf := make([]byte, 64*4)
	for {
		n := uint32(len(buf))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)), 0)
		switch {
		case errors.Is(errno, unix.ERANGE) && int(n) > len(buf): // and says how many bytes it has
			buf = make([]byte, n)
			continue
		case errno != 0:
			return nil, errno
		}
		var groups []uint32
		for b := buf[:n]; len(b) >= 4; b = b[4:] {
			groups = append(groups, binary.NativeEndian.Uint32(b))
		}
		return groups, nil
	}
}
