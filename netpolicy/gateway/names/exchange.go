package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// udpSize is what fits a path of any kind unfragmented (the DNS flag day of 2020).
	udpSize = 1232
	// maxStray is how many datagrams that are no answer to the question are passed over before
	// the exchange is given up.
	maxStray = 100
	rounds   = 3 // in which servers that have not answered are asked again, time permitting
)

var (
	errStray   = errors.New("not an answer to what was asked")
	errSilence = errors.New("no answer in time")
)

// ask asks the servers in turn until one knows.
func (u *Upstream) ask(ctx context.Context, k key) (Answer, error) {
	m := new(dns.Msg)
	m.SetQuestion(k.name+".", dns.TypeA)
	if k.family == IPv6 {
		m.Question[0].Qtype = dns.TypeAAAA
	}
	m.SetEdns0(udpSize, false)

	var failed error
	silent := append([]netip.AddrPort(nil), u.opts.Servers...)
	for range rounds {
		var again []netip.AddrPort
		for _, server := range silent {
			answer, err := u.askOne(ctx, server, m.Copy())
			if err == nil {
				return extract(answer, k), nil
			}
			if errors.Is(err, errSilence) {
				again = append(again, server)
			}
			if failed == nil || errors.Is(err, ErrResolver) {
				failed = err
			}
			if ctx.Err() != nil {
				return Answer{}, failed
			}
		}
		silent = again
	}
	return Answer{}, failed
}

// askOne asks one server, and gets an answer of code NOERROR or NXDOMAIN.
func (u *Upstream) askOne(ctx context.Context, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, u.opts.Try)
	defer cancel()
	for {
		m.Id = dns.Id()
		answer, err := exchange(ctx, "udp", server, m)
		if err == nil && answer.Truncated {
			answer, err = exchange(ctx, "tcp", server, m)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrNoResolver, server, errSilence)
		case err != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrNoResolver, server, err)
		}
		switch answer.Rcode {
		case dns.RcodeSuccess, dns.RcodeNameError:
			return answer, nil
		case dns.RcodeFormatError, dns.RcodeNotImplemented:
			if m.IsEdns0() != nil { // it may be older than EDNS (RFC 6891, 7)
				m.Extra = nil
				continue
			}
		}
		return nil, fmt.Errorf("%w: %s says %s", ErrResolver, server, codeName(answer.Rcode))
	}
}

// exchange puts one question over a socket of its own, whose port the kernel chose at random
// and which takes datagrams from nobody but the server.
func exchange(ctx context.Context, network string, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	question, err := m.Pack()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	var conn net.Conn
	if network == "udp" {
		conn, err = d.DialUDP(ctx, network, netip.AddrPort{}, server)
	} else {
		conn, err = d.DialTCP(ctx, network, netip.AddrPort{}, server)
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	if network == "tcp" {
		if _, err := conn.Write(frame(question)); err != nil {
			return nil, err
		}
		buf, err := readFrame(conn, 1<<16-1)
		if err != nil {
			return nil, err
		}
		return accept(m, buf, true)
	}
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for range maxStray {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		// Whatever is not the answer may be a forgery that came first.
		if answer, err := accept(m, buf[:n], false); err == nil {
			return answer, nil
		}
	}
	return nil, errStray
}

// accept parses an answer and checks that it is one to m.
func accept(m *dns.Msg, packet []byte, whole bool) (*dns.Msg, error) {
	answer := new(dns.Msg)
	err := answer.Unpack(packet)
	if err != nil && (whole || !answer.Truncated) { // some servers cut in the middle of a record
		return nil, fmt.Errorf("%w: %w", errStray, err)
	}
	if answer.Id != m.Id || !answer.Response || answer.Opcode != dns.OpcodeQuery || whole && answer.Truncated ||
		len(answer.Question) != 1 || !same(answer.Question[0], m.Question[0]) {
		return nil, errStray
	}
	return answer, nil
}

func same(a, b dns.Question) bool {
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// frame puts a message's length before it, as streams have it.
func frame(m []byte) []byte {
	return append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(m)), uint16(len(m))), m...)
}

// readFrame reads one message of at most limit bytes from a stream.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > limit {
		return nil, fmt.Errorf("message of %d bytes: %w", n, errTooLong)
	}
	m := make([]byte, n)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	return m, nil
}

var errTooLong = errors.New("too long")
