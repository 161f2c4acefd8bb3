package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// DialerOptions are those of [NewDialer].
type DialerOptions struct {
	Policy   Policy
	Table    *Table // counts names under wildcards that are dialled without having been asked for
	Upstream *Upstream
	// Public says whether an address may be connected to because a granted name has it. The
	// others need a range of the policy.
	Public func(netip.Addr) bool
	// Own says whether an address is the host's own, which is then no more public than
	// loopback. Default: none is.
	Own func(netip.Addr) bool

	Stagger time.Duration // between the starts of attempts on a name's addresses; default 250 ms
	Timeout time.Duration // of a dial in all; default 10 s
}

// A Dialer connects to what is granted, outside.
type Dialer struct {
	opts  DialerOptions
	grace time.Duration // familyGrace, but in tests
}

// NewDialer makes a dialer.
func NewDialer(o DialerOptions) (*Dialer, error) {
	if o.Policy == nil || o.Table == nil || o.Upstream == nil || o.Public == nil {
		return nil, errors.New("dialer: need a policy, a table, an upstream and what is public")
	}
	if o.Own == nil {
		o.Own = func(netip.Addr) bool { return false }
	}
	o.Stagger = orDefault(o.Stagger, 250*time.Millisecond)
	o.Timeout = orDefault(o.Timeout, 10*time.Second)
	return &Dialer{opts: o, grace: familyGrace}, nil
}

const (
	// familyGrace is how long a dial that has addresses of one family waits for the other's.
	familyGrace = 50 * time.Millisecond
	maxAttempts = 16 // addresses of a name that are tried
)

// Dial connects to a TCP port of a granted name, which is in its one spelling, and says which
// address that is. It resolves the name, drops every address that may not be connected to, and
// connects to one of the rest by address: whatever the name points to by then. The caller closes
// the connection. The error is a [*DialError].
func (d *Dialer) Dial(ctx context.Context, name string, port uint16) (net.Conn, netip.AddrPort, error) {
	fail := func(reason error, rule string, addrs []netip.Addr, err error) (net.Conn, netip.AddrPort, error) {
		return nil, netip.AddrPort{}, &DialError{Name: name, Port: port, Reason: reason, Rule: rule, Addresses: addrs, Err: err}
	}
	if !hostName(name) {
		return fail(ErrNotGranted, fmt.Sprintf("%q is not a host name", name), nil, nil)
	}
	decision := d.opts.Policy.Host(name, port)
	if !decision.Allowed {
		return fail(ErrNotGranted, decision.Rule, nil, nil)
	}
	// The name may stand under a wildcard on this port and have a grant of its own on another.
	grant := decision.Grant
	if g := d.opts.Policy.Granted(name); g.Allowed {
		grant = g.Grant
	}
	if _, _, ok := d.opts.Table.Grant(name, grant); !ok {
		rule := fmt.Sprintf("%s, and no more names: limits.names allows %d under wildcards", decision.Rule, d.opts.Table.Limit())
		return fail(ErrNotGranted, rule, nil, nil)
	}

	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	answer, err := d.opts.Upstream.either(ctx, name, d.grace)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fail(ErrTimeout, "", nil, err)
	case err != nil:
		return fail(ErrUnresolved, "", nil, err)
	case answer.Status != Found:
		return fail(ErrNoName, "", nil, nil)
	}
	var good, bad []netip.Addr
	for _, a := range answer.Addresses {
		if a = a.Unmap(); d.permits(a, port) {
			good = append(good, a)
		} else {
			bad = append(bad, a)
		}
	}
	if len(good) == 0 {
		return fail(ErrForbidden, "", bad, nil)
	}
	good = alternate(good)
	good = good[:min(len(good), maxAttempts)]
	conn, to, err := d.race(ctx, good, port)
	if err != nil {
		return fail(classify(ctx, err), "", good, err)
	}
	return conn, to, nil
}

// permits says whether an address that a granted name has may be connected to.
func (d *Dialer) permits(a netip.Addr, port uint16) bool {
	if a.IsUnspecified() {
		return false // the kernel takes it for loopback, and a range may have it in passing
	}
	own := d.opts.Own(a)
	if v4, ok := translated(a); ok {
		own = own || d.opts.Own(v4)
	}
	return !own && d.opts.Public(a) || d.opts.Policy.Address(a, port, "tcp").Allowed
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052

// translated is the IPv4 address that a NAT64 address leads to.
func translated(a netip.Addr) (netip.Addr, bool) {
	if !nat64.Contains(a) {
		return netip.Addr{}, false
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// alternate orders addresses by turns of family, IPv4 first: a host without it knows at once,
// while a broken IPv6 takes its time to fail.
func alternate(addrs []netip.Addr) []netip.Addr {
	var four, six, out []netip.Addr
	for _, a := range addrs {
		if a.Is4() {
			if !slices.Contains(four, a) {
				four = append(four, a)
			}
		} else if !slices.Contains(six, a) {
			six = append(six, a)
		}
	}
	for len(four) > 0 || len(six) > 0 {
		if len(four) > 0 {
			out, four = append(out, four[0]), four[1:]
		}
		if len(six) > 0 {
			out, six = append(out, six[0]), six[1:]
		}
	}
	return out
}

// race tries addresses one behind the other without waiting long for any (RFC 8305), and returns
// the first that is connected. All others are closed by then.
func (d *Dialer) race(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, netip.AddrPort, error) {
	type result struct {
		conn net.Conn
		to   netip.AddrPort
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	started, pending := 0, 0
	next := func() {
		to := netip.AddrPortFrom(addrs[started], port)
		started++
		pending++
		go func() {
			conn, err := connect(ctx, "tcp", to)
			results <- result{conn, to, err}
		}()
	}
	next()
	timer := time.NewTimer(d.opts.Stagger)
	defer timer.Stop()
	var won *result
	var errs []error
	for pending > 0 {
		more := won == nil && started < len(addrs) && ctx.Err() == nil
		select {
		case <-timer.C:
			if more {
				next()
				timer.Reset(d.opts.Stagger)
			}
		case r := <-results:
			pending--
			switch {
			case r.err == nil && won == nil:
				won = &r
				cancel()
			case r.err == nil:
				r.conn.Close()
			default:
				errs = append(errs, r.err)
				if more {
					next()
					timer.Reset(d.opts.Stagger)
				}
			}
		}
	}
	if won == nil {
		return nil, netip.AddrPort{}, errors.Join(errs...)
	}
	return won.conn, won.to, nil
}

// connect connects to exactly this address.
func connect(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, to.String())
	if err != nil {
		return nil, err
	}
	if err := verify(conn, to); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// verify makes sure that a connection leads where it was to.
func verify(conn net.Conn, to netip.AddrPort) error {
	a, ok := conn.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if ok {
		p := a.AddrPort()
		ok = netip.AddrPortFrom(p.Addr().Unmap(), p.Port()) == to
	}
	if !ok {
		return fmt.Errorf("%w: connected to %s instead of %s", ErrForbidden, conn.RemoteAddr(), to)
	}
	return nil
}

// DialAddr connects to an address that a range of the policy grants; network is tcp or udp. The
// caller closes the connection. The error is a [*DialError].
func (d *Dialer) DialAddr(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	fail := func(reason error, rule string, err error) (net.Conn, error) {
		e := &DialError{Port: to.Port(), Reason: reason, Rule: rule, Err: err}
		if to.Addr().IsValid() {
			e.Addresses = []netip.Addr{to.Addr()}
		}
		return nil, e
	}
	switch a := to.Addr(); {
	case network != "tcp" && network != "udp":
		return fail(ErrNotGranted, fmt.Sprintf("protocol %q is neither tcp nor udp", network), nil)
	case !a.IsValid() || a.Zone() != "" || a.IsUnspecified() || to.Port() == 0:
		return fail(ErrForbidden, "the address names no one host and port", nil)
	}
	if decision := d.opts.Policy.Address(to.Addr(), to.Port(), network); !decision.Allowed {
		return fail(ErrNotGranted, decision.Rule, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	conn, err := connect(ctx, network, to)
	if err != nil {
		return fail(classify(ctx, err), "", err)
	}
	return conn, nil
}
