package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"proctor/audit"
	"proctor/netpolicy/egress"
)

// A Policy decides what a run may reach. Names are given in their one spelling: lower case,
// ASCII, no last dot.
type Policy interface {
	Host(name string, port uint16) egress.Decision
	Address(a netip.Addr, port uint16, protocol string) egress.Decision
	Credential(name string) *egress.Credential // of exactly this host, or nil
}

// Names knows what the run's own addresses stand for.
type Names interface {
	Name(a netip.Addr) (string, bool)
}

// A Dialer connects to the outside. It checks the address that it connects to by itself. The
// connection belongs to the caller.
type Dialer interface {
	Dial(ctx context.Context, name string, port uint16) (net.Conn, netip.AddrPort, error)
	DialAddr(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
}

// A Terminator takes over connections to names that have a credential, and records them.
type Terminator interface {
	// Serve is given a connection from its first byte on, whose ClientHello names name. It may
	// close it; the relay does after Serve has returned, and before where a limit or the run
	// ends it: reads and writes then return a *[LimitError] or another error. What it reads
	// and writes counts against the run's limits. dest is what the code connected to; of a
	// connection that came through the explicit proxy it is the proxy's address with the port
	// that the proxy was asked for.
	Serve(ctx context.Context, conn net.Conn, name string, dest netip.AddrPort, client uint16) error
}

// A Recorder takes down what became of a connection. It is called from many goroutines.
type Recorder interface {
	Flow(audit.Flow)
}

// A Sender sends datagrams to the run, all from one address and port. It may share its socket
// with others, and with [Relay.ServePacket], which alone receives. It is called from many
// goroutines.
type Sender interface {
	Send(p []byte, to netip.AddrPort) error
}

// Options are what a [Relay] needs. Policy, Names, Dialer and Recorder are required.
type Options struct {
	Policy     Policy
	Names      Names
	Dialer     Dialer
	Terminator Terminator // nil: names with a credential are refused on port 443
	Recorder   Recorder

	Limits egress.Limits // Connections, BytesUp, BytesDown and Idle; zero: their defaults

	// ProxyAddr is where the run finds the explicit proxy. A connection to it is one to the
	// proxy whichever listener accepts it, and the proxy does not connect to it.
	ProxyAddr netip.AddrPort
	// Synthetic are the ranges whose addresses stand for names. One that Names does not know
	// is never looked up among granted ranges.
	Synthetic []netip.Prefix
	// Own are the run's own addresses besides loopback ones. Datagrams from others are refused:
	// where every address is local, code can send from any.
	Own []netip.Addr
	// Reply returns what sends the answers to datagrams for local. nil: no datagram is relayed.
	Reply func(local netip.AddrPort) (Sender, error)
	// Reason puts the error of a Dialer into a few words for the run and the record. nil, or
	// "" from it: the relay's own.
	Reason func(error) string

	HelloTimeout time.Duration // for a whole ClientHello, or the head of a request; default 10 s
	SpeakTimeout time.Duration // after which a client that is silent waits for the server to speak, on ports other than 80 and 443; default 300 ms
	DialTimeout  time.Duration // default 10 s
	PacketIdle   time.Duration // after which a silent stream of datagrams has ended; default 60 s
}

// A Relay serves the connections of one run. It has no goroutines but those of its Serve
// methods, which may be called more than once and at the same time.
type Relay struct {
	Options
	slots    chan struct{} // one for every connection that is being served
	up, down *budget
}

// New returns a Relay, which needs no closing.
func New(o Options) (*Relay, error) {
	switch {
	case o.Policy == nil:
		return nil, errors.New("relay: no policy")
	case o.Names == nil:
		return nil, errors.New("relay: no names")
	case o.Dialer == nil:
		return nil, errors.New("relay: no dialer")
	case o.Recorder == nil:
		return nil, errors.New("relay: no recorder")
	case o.Limits.Connections < 0 || o.Limits.BytesUp < 0 || o.Limits.BytesDown < 0 || o.Limits.Idle < 0:
		return nil, fmt.Errorf("relay: limits %+v: a limit is not negative", o.Limits)
	}
	setDefault(&o.Limits.Connections, 100)
	setDefault(&o.Limits.BytesUp, 100<<20)
	setDefault(&o.Limits.BytesDown, 1<<30)
	setDefault(&o.Limits.Idle, 5*time.Minute)
	setDefault(&o.HelloTimeout, 10*time.Second)
	setDefault(&o.SpeakTimeout, 300*time.Millisecond)
	setDefault(&o.DialTimeout, 10*time.Second)
	setDefault(&o.PacketIdle, time.Minute)
	return &Relay{
		Options: o,
		slots:   make(chan struct{}, o.Limits.Connections),
		up:      &budget{limit: o.Limits.BytesUp, what: "bytes_up"},
		down:    &budget{limit: o.Limits.BytesDown, what: "bytes_down"},
	}, nil
}

func setDefault[T comparable](v *T, def T) {
	if *v == *new(T) {
		*v = def
	}
}

func (r *Relay) synthetic(a netip.Addr) bool {
	for _, p := range r.Synthetic {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// own says whether a is an address of the run's.
func (r *Relay) own(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(r.Own, a) }

// admit takes a place for a connection, or says which limit has none left.
func (r *Relay) admit() *LimitError {
	for _, b := range []*budget{r.up, r.down} {
		if b.spent() {
			return b.err()
		}
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	default:
		return &LimitError{Rule: fmt.Sprintf("connections limit of %d", r.Limits.Connections)}
	}
}

func (r *Relay) release() { <-r.slots }
