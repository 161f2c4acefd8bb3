package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

const (
	// maxMessage is how long a question may be, in bytes. Ours name no larger UDP size.
	maxMessage = 4096
	// maxFailures is how many reads may fail one behind the other. One may fail for what came
	// before it, such as a client's port that is closed.
	maxFailures = 100
)

// ServePacket answers what comes to conn until ctx ends, which is no error, or conn fails. It
// sees to it that an answer leaves from the address that was asked, whatever the socket is
// bound to. It closes conn and waits for what it started.
func (r *Resolver) ServePacket(ctx context.Context, conn *net.UDPConn) error {
	defer conn.Close()
	if err := prepare(conn); err != nil {
		return fmt.Errorf("resolver: %s: %w", conn.LocalAddr(), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	bound := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	packet, control, out := make([]byte, maxMessage), make([]byte, 128), make([]byte, udpSize)
	failures := 0
	for {
		n, c, flags, client, err := conn.ReadMsgUDPAddrPort(packet, control)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if failures++; failures > maxFailures || errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("resolver: %w", err)
			}
			continue
		}
		failures = 0
		src := source{protocol: "udp", client: client, server: destination(control[:c], bound)}
		q := r.receive(packet[:n])
		if flags&unix.MSG_TRUNC != 0 && q.fault.rule == "" {
			q.fault = fault{rule: fmt.Sprintf("a question has at most %d bytes", maxMessage), rcode: dns.RcodeFormatError}
		}
		rep, done := r.judge(q)
		if done {
			r.send(conn, q, rep, src, out)
			continue
		}
		select {
		case r.wait <- struct{}{}:
			wg.Go(func() {
				defer func() { <-r.wait }()
				r.send(conn, q, r.lookup(ctx, q, rep), src, nil)
			})
		default:
			err := fmt.Errorf("%w: too many questions wait", ErrResolver)
			r.send(conn, q, r.resolved(q, rep, Answer{}, err), src, out)
		}
	}
}

// send records and answers. The client's part is to ask again if the answer gets lost.
func (r *Resolver) send(conn *net.UDPConn, q *query, rep reply, src source, buf []byte) {
	r.note(q, &rep, src)
	if rep.mute {
		return
	}
	out, err := q.pack(&rep, q.size(), buf)
	if err != nil {
		return
	}
	_, _, _ = conn.WriteMsgUDPAddrPort(out, from(src.server.Addr()), src.client)
}

// prepare makes the socket say where a datagram was sent to, and send from addresses that are
// routed to this host without being an interface's.
func prepare(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		family, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil {
			failed = fmt.Errorf("SO_DOMAIN: %w", err)
			return
		}
		type option struct{ level, name int }
		// An IPv6 socket may take IPv4 as well, with IPv4's options; the second is one for both.
		options := []option{{unix.SOL_IP, unix.IP_RECVORIGDSTADDR}, {unix.SOL_IP, unix.IP_FREEBIND}}
		if family == unix.AF_INET6 {
			options = append(options, option{unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR})
		}
		for _, o := range options {
			if err := unix.SetsockoptInt(int(fd), o.level, o.name, 1); err != nil {
				failed = fmt.Errorf("socket option %d of level %d: %w", o.name, o.level, err)
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// destination is where a datagram was sent to: as the kernel says, or else where the socket is.
func destination(control []byte, bound netip.AddrPort) netip.AddrPort {
	for len(control) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		control = rest
		switch {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_ORIGDSTADDR && len(data) >= unix.SizeofSockaddrInet4:
			sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&data[0]))
			return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), ntohs(sa.Port))
		case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_ORIGDSTADDR && len(data) >= unix.SizeofSockaddrInet6:
			sa := (*unix.RawSockaddrInet6)(unsafe.Pointer(&data[0]))
			return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), ntohs(sa.Port))
		}
	}
	return netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port())
}

// from makes a datagram leave from a.
func from(a netip.Addr) []byte {
	switch {
	case a.IsUnspecified():
		return nil
	case a.Is4():
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
}

// ntohs turns a port that was read as a number in the machine's order.
func ntohs(port uint16) uint16 {
	b := *(*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}
