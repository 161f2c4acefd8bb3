package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/gateway/relay"
	"proctor/netpolicy/wire"
)

// sockets are those that the gateway was started with.
type sockets struct {
	streams []*net.TCPListener
	packets map[uint16][]*net.UDPConn // by port
}

func adopt(list []wire.Socket) (_ *sockets, err error) {
	s := &sockets{packets: map[uint16][]*net.UDPConn{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for i, socket := range list {
		f := os.NewFile(uintptr(wire.FirstSocket+i), "socket")
		err := s.add(socket, f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("socket %d, %s%d port %d: %w", i, socket.Protocol, socket.Family, socket.Port, err)
		}
	}
	return s, nil
}

func (s *sockets) add(socket wire.Socket, f *os.File) error {
	if socket.Protocol == "tcp" {
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return errors.Join(errors.New("is none of TCP"), l.Close())
		}
		s.streams = append(s.streams, tcp)
		return nil
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return err
	}
	udp, ok := c.(*net.UDPConn)
	if !ok {
		return errors.Join(errors.New("is none of UDP"), c.Close())
	}
	s.packets[socket.Port] = append(s.packets[socket.Port], udp)
	return nil
}

func (s *sockets) close() {
	for _, l := range s.streams {
		l.Close()
	}
	for _, conns := range s.packets {
		for _, c := range conns {
			c.Close()
		}
	}
}

// reply returns what sends from local to the run. Its port is that of a socket that is there;
// its address is one of the run's own, as all are.
func (s *sockets) reply(local netip.AddrPort) (relay.Sender, error) {
	for _, c := range s.packets[local.Port()] {
		if c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().Is4() == local.Addr().Is4() {
			return &replier{conn: c, from: source(local.Addr())}, nil
		}
	}
	return nil, fmt.Errorf("no socket for datagrams from port %d", local.Port())
}

// A replier sends from an address by a socket that others use, too. It does not receive: what
// comes there may be for another destination.
type replier struct {
	conn *net.UDPConn
	from []byte // control message
}

// Send returns the error of the socket.
func (r *replier) Send(p []byte, to netip.AddrPort) error {
	_, _, err := r.conn.WriteMsgUDPAddrPort(p, r.from, to)
	return err
}

// source is the control message that sends from an address.
func source(a netip.Addr) []byte {
	if a.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
}

// A splitter hands the connections of one listener to several, by what they were made to.
type splitter struct {
	l     *net.TCPListener
	to    func(netip.AddrPort) int
	parts []chan net.Conn
}

func newSplitter(l *net.TCPListener, to func(netip.AddrPort) int, parts int) *splitter {
	s := &splitter{l: l, to: to}
	for range parts {
		s.parts = append(s.parts, make(chan net.Conn))
	}
	return s
}

// serve accepts until ctx ends.
func (s *splitter) serve(ctx context.Context) error {
	defer s.l.Close()
	defer context.AfterFunc(ctx, func() { s.l.Close() })()
	for {
		c, err := s.l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if isTemporary(err) {
				continue
			}
			return err
		}
		dest := c.LocalAddr().(*net.TCPAddr).AddrPort()
		select {
		case s.parts[s.to(netip.AddrPortFrom(dest.Addr().Unmap(), dest.Port()))] <- c:
		case <-ctx.Done():
			c.Close()
		}
	}
}

// isTemporary: a connection that was broken off before it was accepted ends no listener.
func isTemporary(err error) bool {
	return errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EPERM)
}

func (s *splitter) part(i int) net.Listener {
	return &part{s: s, conns: s.parts[i], closed: make(chan struct{})}
}

// A part is a listener of a splitter's.
type part struct {
	s      *splitter
	conns  chan net.Conn
	closed chan struct{}
}

func (p *part) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *part) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *part) Addr() net.Addr { return p.s.l.Addr() }
