package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"proctor/audit"
	"proctor/netpolicy/egress"
	"proctor/netpolicy/gateway/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everywhere grants everything, and answers as the destination itself.
type everywhere struct{ *testing.T }

func (everywhere) Host(string, uint16) egress.Decision { return egress.Decision{} }

func (everywhere) Address(netip.Addr, uint16, string) egress.Decision {
	return egress.Decision{Allowed: true, Rule: "all"}
}

func (everywhere) Credential(string) *egress.Credential { return nil }

func (everywhere) Name(netip.Addr) (string, bool) { return "", false }

func (everywhere) Dial(context.Context, string, uint16) (net.Conn, netip.AddrPort, error) {
	return nil, netip.AddrPort{}, net.ErrClosed
}

func (everywhere) DialAddr(_ context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		b := make([]byte, 1000)
		for {
			n, err := theirs.Read(b)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(theirs, "%v: %s", to.Addr(), b[:n]); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

func (e everywhere) Flow(f audit.Flow) {
	if f.Decision != audit.Allowed {
		e.Errorf("flow %+v", f)
	}
}

// All destinations of a port share one socket: what is for one must not be taken for another.
func TestReplyToSeveral(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	port := c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	s := &sockets{packets: map[uint16][]*net.UDPConn{port: {c}}}
	defer s.close()
	all := everywhere{t}
	r, err := relay.New(relay.Options{Policy: all, Names: all, Dialer: all, Recorder: all, Reply: s.reply})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := r.ServePacket(ctx, c); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer cancel()

	client, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	b := make([]byte, 1000)
	for i := range 200 {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 7, 7, byte(1 + i%3)}), port)
		if _, err := client.WriteToUDPAddrPort(fmt.Append(nil, i), to); err != nil {
			t.Fatal(err)
		}
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, from, err := client.ReadFromUDPAddrPort(b)
		if want := fmt.Sprintf("%v: %d", to.Addr(), i); err != nil || from != to || string(b[:n]) != want {
			t.Fatalf("%q comes from %v, %v; it should be %q from %v", b[:n], from, err, want, to)
		}
	}
}
