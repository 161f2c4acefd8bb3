package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/netpolicy/egress"
	"proctor/netpolicy/gateway/confine"
	"proctor/netpolicy/gateway/credential"
	"proctor/netpolicy/gateway/names"
	"proctor/netpolicy/gateway/relay"
	"proctor/netpolicy/secret"
	"proctor/netpolicy/wire"
)

const dnsPort = 53

// oomScoreAdj is that of the run's box.
const oomScoreAdj = "500"

// Main is the gateway's life: it is told what it is for on the descriptor [wire.Control], gives
// up every right, and serves until the supervisor sends no more. It returns nil when all has
// been reported.
func Main() error {
	control, err := net.FileConn(os.NewFile(wire.Control, "control"))
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer control.Close()
	config, err := wire.ReadConfig(control)
	if err != nil {
		return err
	}
	sockets, err := adopt(config.Sockets)
	if err != nil {
		return err
	}
	defer sockets.close()
	// The supervisor is the last to go when the host is out of memory; what parses hostile
	// input for one run is not. While it is root, it may say so.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScoreAdj), 0); err != nil {
		return err
	}
	// Nothing that hostile code sent has been read so far.
	if err := become(config.UID); err != nil {
		return err
	}
	if err := confine.Confine(); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	reports := &reporter{to: wire.NewWriter(control)}
	s, err := assemble(config, sockets, reports)
	if err != nil {
		return err
	}
	if err := reports.to.Write(wire.Report{Ready: &wire.Ready{CA: s.ca}}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, control) // until the supervisor is done, or dead
		cancel()
	}()
	var beating sync.WaitGroup
	beating.Go(func() { reports.beat(ctx) })
	err = s.serve(ctx)
	cancel()
	beating.Wait()
	return errors.Join(err, reports.done())
}

// become gives up root, with all threads. The supervisor does not start it as another user, who
// might not reach the program's file.
func become(uid uint32) error {
	if uid == 0 {
		return errors.New("no user to become")
	}
	id := int(uid)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id), syscall.Setresuid(id, id, id)); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	// It ends by itself when nobody listens, but not where it is stopped, or was taken over.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the supervisor: %w", err)
	}
	return nil
}

// A reporter tells the supervisor. It is the Recorder of all that serves. When nobody listens
// any more there is nothing left to serve for either, which Main finds by itself.
type reporter struct {
	to             *wire.Writer
	queries, flows atomic.Int64
}

func (r *reporter) Query(q audit.Query) {
	r.queries.Add(1)
	_ = r.to.Write(wire.Report{Query: &q})
}

func (r *reporter) Flow(f audit.Flow) {
	r.flows.Add(1)
	_ = r.to.Write(wire.Report{Flow: &f})
}

func (r *reporter) Scrub(s audit.Scrub) { _ = r.to.Write(wire.Report{Scrub: &s}) }

func (r *reporter) beat(ctx context.Context) {
	tick := time.NewTicker(wire.BeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = r.to.Write(wire.Report{})
		case <-ctx.Done():
			return
		}
	}
}

func (r *reporter) done() error {
	return r.to.Write(wire.Report{Done: &wire.Done{Queries: r.queries.Load(), Flows: r.flows.Load()}})
}

// server is everything that answers in one run's network.
type server struct {
	sockets  *sockets
	proxy    netip.AddrPort
	upstream *names.Upstream
	resolver *names.Resolver
	relay    *relay.Relay
	ca       []byte
}

func assemble(c *wire.Config, s *sockets, reports *reporter) (*server, error) {
	policy := &c.Policy
	if err := policy.Check(); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	out := &server{sockets: s, proxy: c.Proxy}
	table := names.NewTable(policy.Limits.Names)
	var err error
	if out.upstream, err = names.NewUpstream(names.UpstreamOptions{Servers: c.Resolvers}); err != nil {
		return nil, err
	}
	out.resolver, err = names.NewResolver(names.Options{
		Policy: policy, Table: table, Upstream: out.upstream, Recorder: reports, Queries: policy.Limits.Queries,
	})
	if err != nil {
		return nil, err
	}
	dialer, err := names.NewDialer(names.DialerOptions{
		Policy: policy, Table: table, Upstream: out.upstream, Public: egress.Public,
		Own: func(a netip.Addr) bool { return slices.Contains(c.Host, a) },
	})
	if err != nil {
		return nil, err
	}
	options := relay.Options{
		Policy: policy, Names: table, Dialer: dialer, Recorder: reports, Limits: policy.Limits, ProxyAddr: c.Proxy,
		Synthetic: []netip.Prefix{egress.Synthetic4, egress.Synthetic6}, Own: c.Own, Reply: s.reply, Reason: reason,
	}
	if options.Terminator, out.ca, err = terminator(c, dialer, reports); err != nil {
		return nil, err
	}
	out.relay, err = relay.New(options)
	return out, err
}

// reason is why a name could not be connected to, without the rest of what the dialer says.
func reason(err error) string {
	if e, ok := errors.AsType[*names.DialError](err); ok {
		return e.Reason.Error()
	}
	return ""
}

// terminator is for the hosts that have a credential; nil where none has.
func terminator(c *wire.Config, dialer *names.Dialer, reports *reporter) (relay.Terminator, []byte, error) {
	var hosts []string
	for _, cred := range c.Policy.Credentials {
		hosts = append(hosts, cred.Host)
	}
	if len(hosts) == 0 {
		return nil, nil, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.Roots) {
		return nil, nil, errors.New("credentials: there are no certificates of authorities to verify their hosts by")
	}
	authority, err := credential.NewAuthority(c.Run, hosts)
	if err != nil {
		return nil, nil, err
	}
	t, err := credential.New(credential.Options{
		Authority: authority, Policy: &c.Policy, Dialer: dialer, Roots: roots, Recorder: reports,
		Secrets: func(name string) (credential.Secret, bool) {
			s, ok := c.Secrets[name]
			return secret.New(s), ok
		},
		Idle: time.Duration(c.Policy.Limits.Idle), Connections: c.Policy.Limits.Connections,
	})
	if err != nil {
		return nil, nil, err
	}
	return &ending{t, c.Proxy}, authority.PEM(), nil
}

// An ending is the terminator, told which connections came by the proxy.
type ending struct {
	*credential.Terminator
	proxy netip.AddrPort
}

func (e *ending) Serve(ctx context.Context, conn net.Conn, name string, dest netip.AddrPort, client uint16) error {
	target := credential.Target{Name: name, Port: dest.Port(), Dest: dest, Client: client, Proxy: dest.Addr() == e.proxy.Addr()}
	if target.Proxy {
		target.Dest = e.proxy
	}
	return e.ServeTarget(ctx, conn, target)
}

// serve answers on every socket until ctx ends, and returns when all that was answered is
// reported.
func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.upstream.Close()
	var serving sync.WaitGroup
	start := func(f func() error) {
		serving.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				cancel(err) // better nothing is answered than a part
			}
		})
	}
	for _, l := range s.sockets.streams {
		split := newSplitter(l, func(to netip.AddrPort) int {
			switch {
			case to.Port() == dnsPort:
				return 0
			case to == s.proxy:
				return 1
			}
			return 2
		}, 3)
		start(func() error { return split.serve(ctx) })
		start(func() error { return s.resolver.ServeStream(ctx, split.part(0)) })
		start(func() error { return s.relay.ServeProxy(ctx, split.part(1)) })
		start(func() error { return s.relay.Serve(ctx, split.part(2)) })
	}
	for port, conns := range s.sockets.packets {
		for _, c := range conns {
			if port == dnsPort {
				start(func() error { return s.resolver.ServePacket(ctx, c) })
			} else {
				start(func() error { return s.relay.ServePacket(ctx, c) })
			}
		}
	}
	serving.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
