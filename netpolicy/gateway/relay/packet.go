package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

const (
	rulePacketName = "udp is relayed to granted ranges alone"
	ruleNoReply    = "udp is not relayed here"
	ruleSource     = "the datagram is not from an address of the run"

	maxPacket = 64 << 10
	// maxRefusedStreams bounds how many refused streams of datagrams are told apart. The
	// datagrams of further ones are counted together.
	maxRefusedStreams = 1024
)

// A stream is the datagrams from one socket of the run to one destination, and back.
type streamKey struct{ client, dest netip.AddrPort }

// packets are the datagrams that one call of ServePacket relays.
type packets struct {
	r   *Relay
	ctx context.Context
	wg  sync.WaitGroup

	mu      sync.Mutex
	streams map[streamKey]*stream
	refused map[streamKey]time.Time // when the last one came
	turned  turnedAway
	swept   time.Time
}

// ServePacket relays the datagrams that c gets, which is the socket that every destination of
// the run leads to, until ctx ends, and then returns nil. It sets c to tell each datagram's
// destination, and closes it.
func (r *Relay) ServePacket(ctx context.Context, c *net.UDPConn) error {
	defer c.Close()
	if err := tellDestination(c); err != nil {
		return fmt.Errorf("udp relay: destination of a datagram: %w", err)
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	served, cancel := context.WithCancel(ctx) // ends with the socket, too
	p := &packets{
		r: r, ctx: served,
		streams: make(map[streamKey]*stream),
		refused: make(map[streamKey]time.Time),
		turned:  turnedAway{r: r},
	}
	defer func() {
		cancel()
		p.wg.Wait()
		p.turned.flush()
	}()
	buf, oob := make([]byte, maxPacket), make([]byte, 256)
	for {
		n, oobn, flags, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && passing(err):
			continue
		case err != nil:
			return fmt.Errorf("udp relay: %w", err)
		}
		dest, ok := destination(oob[:oobn], addrPort(c.LocalAddr()).Port())
		if !ok || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			continue
		}
		p.handle(streamKey{client: unmap(from), dest: dest}, buf[:n])
	}
}

// handle carries one datagram to the outside, if it may.
func (p *packets) handle(key streamKey, data []byte) {
	p.mu.Lock()
	s, ok := p.streams[key]
	if !ok {
		s = p.open(key)
	}
	p.mu.Unlock()
	if s != nil {
		s.send(data)
	}
}

// open begins a stream, or records once that there is none. It is called with the lock.
func (p *packets) open(key streamKey) *stream {
	if p.ctx.Err() != nil {
		return nil
	}
	if _, ok := p.refused[key]; ok {
		p.refused[key] = time.Now()
		return nil
	}
	f := audit.Flow{
		Protocol: "udp",
		Address:  key.dest.Addr(),
		Port:     key.dest.Port(),
		From:     key.client.Addr(),
		Client:   key.client.Port(),
		Decision: audit.Blocked,
	}
	name, named := p.r.Names.Name(key.dest.Addr())
	f.Name = audit.Text(name)
	switch {
	case !p.r.own(key.client.Addr()):
		f.Rule = ruleSource
	case named:
		f.Rule = rulePacketName
	case p.r.synthetic(key.dest.Addr()):
		f.Rule = ruleNeverResolved
	default:
		d := p.r.Policy.Address(key.dest.Addr(), key.dest.Port(), "udp")
		f.Rule = d.Rule
		if !d.Allowed {
			break
		}
		if p.r.Reply == nil {
			f.Rule = ruleNoReply
			break
		}
		if limit := p.r.admit(); limit != nil {
			f.Rule = limit.Rule
			break
		}
		f.Decision = audit.Allowed
		s, err := p.start(key, f)
		if err == nil {
			return s
		}
		p.r.release()
		f.Error = p.r.reason(err)
	}
	p.refuse(key, f)
	return nil
}

func (p *packets) refuse(key streamKey, f audit.Flow) {
	now := time.Now()
	if now.Sub(p.swept) > time.Second {
		p.swept = now
		for k, last := range p.refused {
			if now.Sub(last) > p.r.PacketIdle {
				delete(p.refused, k)
			}
		}
	}
	if len(p.refused) < maxRefusedStreams {
		p.refused[key] = now
		p.r.Recorder.Flow(f)
		return
	}
	p.turned.add(f)
}

// start connects a stream to the outside. It is called with the lock.
func (p *packets) start(key streamKey, f audit.Flow) (*stream, error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.r.DialTimeout)
	defer cancel()
	up, err := p.r.Dialer.DialAddr(ctx, "udp", key.dest)
	if err != nil {
		return nil, err
	}
	back, err := p.r.Reply(key.dest)
	if err != nil {
		up.Close()
		return nil, err
	}
	f.Upstream = key.dest
	s := &stream{p: p, key: key, flow: f, up: up, back: back, start: time.Now()}
	s.stop = context.AfterFunc(p.ctx, func() { s.end(errEnded) })
	p.streams[key] = s
	p.wg.Go(s.receive)
	return s, nil
}

// tellDestination has the kernel say of each datagram which address and port it was sent to:
// the socket's own port is not the one where sk_lookup chose the socket.
func tellDestination(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var err4, err6 error
	err = raw.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_RECVORIGDSTADDR, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR, 1)
	})
	if err == nil && err4 != nil && err6 != nil {
		err = errors.Join(err4, err6)
	}
	return err
}

// destination reads what the kernel said. Without a port in it, the socket's own is meant.
func destination(oob []byte, port uint16) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var info netip.AddrPort
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_ORIGDSTADDR,
			m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_ORIGDSTADDR:
			sa, err := unix.ParseOrigDstAddr(&m)
			if err != nil {
				return netip.AddrPort{}, false
			}
			switch sa := sa.(type) {
			case *unix.SockaddrInet4:
				return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
			case *unix.SockaddrInet6:
				return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), true
			}
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			// ipi_ifindex, ipi_spec_dst, ipi_addr
			info = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Data[8:12])), port)
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			info = netip.AddrPortFrom(netip.AddrFrom16([16]byte(m.Data[:16])).Unmap(), port)
		}
	}
	return info, info.IsValid()
}
