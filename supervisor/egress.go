package supervisor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
	"proctor/netpolicy/egress"
	"proctor/netpolicy/wire"
	"proctor/supervisor/box"
	"proctor/supervisor/limits"
	"proctor/supervisor/profile"
)

// Network is what runs' gateways are told of the host.
type Network struct {
	Gateway   string                       // the gateway's program
	Resolvers []netip.AddrPort             // the host's, in order
	Roots     []byte                       // certificates of the authorities that upstreams are verified by, PEM
	Addresses func() ([]netip.Addr, error) // the host's own, which a name leads to only where a range is granted, too
}

// network is a run's: what it may reach, and the gateway that all addresses lead to.
type network struct {
	policy  *egress.Policy
	gateway *netpolicy.Gateway
}

// grants are what the kernel lets through to the gateway, which decides again, by name.
func grants(p *egress.Policy) []bpf.Grant {
	all := []bpf.Grant{{
		Prefix: netip.PrefixFrom(netpolicy.Resolver, netpolicy.Resolver.BitLen()),
		Ports: []bpf.Port{
			{Number: netpolicy.DNS, Protocol: "udp", Rule: bpf.RuleResolver},
			{Number: netpolicy.DNS, Protocol: "tcp", Rule: bpf.RuleResolver},
		},
	}}
	if len(p.Allow) == 0 {
		return all
	}
	proxy := netpolicy.Proxy
	all = append(all, bpf.Grant{
		Prefix: netip.PrefixFrom(proxy.Addr(), proxy.Addr().BitLen()),
		Ports:  []bpf.Port{{Number: proxy.Port(), Protocol: "tcp", Rule: bpf.RuleProxy}},
	})
	byRange := map[netip.Prefix][]bpf.Port{}
	for _, g := range p.Allow {
		ranges := []netip.Prefix{g.CIDR}
		if g.Host != "" {
			ranges = []netip.Prefix{egress.Synthetic4, egress.Synthetic6}
		}
		for _, r := range ranges {
			for _, port := range g.Ports {
				p := bpf.Port{Number: port, Protocol: g.Protocol, Rule: bpf.RuleGranted}
				if !slices.Contains(byRange[r], p) {
					byRange[r] = append(byRange[r], p)
				}
			}
		}
	}
	for r, ports := range byRange {
		all = append(all, bpf.Grant{Prefix: r, Named: r == egress.Synthetic4 || r == egress.Synthetic6, Ports: ports})
	}
	return all
}

// datagramPorts are those that the gateway answers on.
func datagramPorts(p *egress.Policy) []uint16 {
	var ports []uint16
	for _, g := range p.Allow {
		if g.Protocol == "udp" {
			ports = append(ports, g.Ports...)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// serve has a gateway started in the run's network namespace. The function that it returns waits until that serves, and is to be called.
func (r *run) serve(ctx context.Context, ns *netpolicy.Namespace) (wait func() error, err error) {
	s := r.supervisor
	secrets, err := r.secrets(ctx)
	if err != nil {
		return nil, err
	}
	host, err := s.network.Addresses()
	if err != nil {
		return nil, fmt.Errorf("this host's addresses: %w", err)
	}
	sockets, err := ns.Sockets(datagramPorts(r.net.policy))
	if err != nil {
		return nil, err
	}
	if err := r.steer(ns, sockets); err != nil {
		for _, socket := range sockets {
			socket.File.Close()
		}
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		var err error
		r.net.gateway, err = netpolicy.StartGateway(ctx, netpolicy.GatewayOptions{
			Binary: s.network.Gateway,
			Config: wire.Config{
				Run: r.id, Policy: *r.net.policy, Secrets: secrets, Resolvers: s.network.Resolvers, Host: host,
				Roots: s.network.Roots, Proxy: netpolicy.Proxy, Own: []netip.Addr{netpolicy.Own4, netpolicy.Own6},
			},
			Sockets: sockets,
			Report:  r.report,
		})
		started <- err
	}()
	return func() error {
		if err := <-started; err != nil {
			return err
		}
		r.onRelease("gateway", func(context.Context) error { return r.net.gateway.Close() })
		return nil
	}, nil
}

// secrets reads those of the run's credentials, anew for each run.
func (r *run) secrets(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	reader := profile.Secrets{Env: os.Environ()}
	for i := range r.net.policy.Credentials {
		c := &r.net.policy.Credentials[i]
		s, err := reader.Read(ctx, c)
		if err != nil && ctx.Err() == nil {
			return nil, refuse("nothing of it ran; have the operator mend the secret's source", "profile %s: %v", r.plan.profile.Name, err)
		}
		if err != nil {
			// Where secrets are is nothing for the caller.
			r.log.Error("credential not read", "credential", c.Name, "profile", r.plan.profile.Name, "error", err)
			return nil, fmt.Errorf("credential %s of profile %s can't be read: the supervisor's log says why", c.Name, r.plan.profile.Name)
		}
		all[c.Name] = s.Reveal()
	}
	return all, nil
}

// steer has every address of the namespace lead to the sockets.
func (r *run) steer(ns *netpolicy.Namespace, sockets []netpolicy.Socket) error {
	netns, err := os.Open(ns.Path())
	if err != nil {
		return err
	}
	defer netns.Close()
	var to []bpf.Destination
	for _, socket := range sockets {
		raw, err := socket.File.SyscallConn()
		if err != nil {
			return err
		}
		to = append(to, bpf.Destination{Protocol: socket.Protocol, Family: socket.Family, Port: socket.Port, Socket: raw})
	}
	steering, err := r.supervisor.sensor.Steer(netns, to)
	if err != nil {
		return err
	}
	r.onRelease("steering", func(context.Context) error { return steering.Close() })
	return nil
}

// trust gives the box the certificates that it needs to believe what it is granted, and
// returns the variables that name them.
func (r *run) trust() ([]string, error) {
	if len(r.net.policy.Allow) == 0 {
		return nil, nil
	}
	const bundle, keystore = "ca-bundle.pem", "ca-bundle.p12"
	all := slices.Concat(r.supervisor.network.Roots, []byte("\n"), r.net.gateway.CA())
	files := map[string][]byte{bundle: all}
	env := []string{"PROCTOR_PROXY=http://" + netpolicy.Proxy.String()}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
		"NODE_EXTRA_CA_CERTS", // besides its own
	} {
		env = append(env, name+"="+path.Join(box.TrustDir, bundle))
	}
	if r.plan.java {
		var err error
		if files[keystore], err = javaTrust(all); err != nil {
			return nil, err
		}
		env = append(env, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStore="+path.Join(box.TrustDir, keystore))
	}
	return env, r.box.AttachTrust(files)
}

// javaTrust makes of certificates in PEM what Java reads. It is read without a password: there
// is nothing secret in it.
func javaTrust(bundle []byte) ([]byte, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		// Systems have some that Go does not take, and Java does without.
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			certs = append(certs, c)
		}
	}
	store, err := pkcs12.Passwordless.EncodeTrustStore(certs, "")
	if err != nil {
		return nil, fmt.Errorf("certificates for Java: %w", err)
	}
	return store, nil
}

// report takes in what the gateway tells.
func (r *run) report(told wire.Report) {
	e := audit.Event{Run: r.id, Time: time.Now().UTC()}
	var protocol string
	var from, to netip.AddrPort
	switch {
	case told.Query != nil:
		e.Kind, e.Query = audit.KindQuery, told.Query
		e.Query.Rule = r.byProfile(e.Query.Rule)
		protocol, to = told.Query.Protocol, told.Query.Server
		from = netip.AddrPortFrom(told.Query.From, told.Query.Client)
	case told.Flow != nil:
		e.Kind, e.Flow = audit.KindFlow, told.Flow
		e.Flow.Rule = r.byProfile(e.Flow.Rule)
		protocol, to = told.Flow.Protocol, netip.AddrPortFrom(told.Flow.Address, told.Flow.Port)
		from = netip.AddrPortFrom(told.Flow.From, told.Flow.Client)
	case told.Scrub != nil:
		e.Kind, e.Scrub = audit.KindScrub, told.Scrub
	default:
		return
	}
	if from.Addr().IsValid() && to.Addr().IsValid() {
		who, err := r.watch.Sender(protocol, from, to)
		if err != nil {
			r.log.Warn("who asked the gateway is not known", "error", err)
		}
		e.Process = who
	}
	if err := r.takeTold(e, told.Size); err != nil {
		// Nothing goes on that is not written down.
		select {
		case r.mistold <- err:
		default: // it is known
		}
	}
}

// toldUnit is how much of a report counts for one event, as in the kernel.
const toldUnit = 1 << 10

// takeTold takes in what the gateway told. The kernel's limit does not see it: a thread that
// connects to one place a thousand times is one event of the kernel's, and a thousand here. So
// it has a limit of its own, the same one.
func (r *run) takeTold(e audit.Event, size int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := uint64(r.limits.AuditEvents)
	r.told += uint64(1 + size/toldUnit)
	if r.told <= limit {
		return r.takeLocked([]audit.Event{e}, r.write)
	}
	r.untold[e.Kind]++
	if r.onLoss == limits.KillOnLoss {
		select {
		case r.overtold <- &bpf.LossError{Limit: limit, Charged: r.told}:
		default: // it is known
		}
	}
	// It counts in the verdict, and against what the kernel saw.
	return r.takeLocked([]audit.Event{e}, func([]audit.Event) error { return nil })
}

// withUntold adds what the gateway's limit kept out of the record.
func (r *run) withUntold(lost map[audit.Kind]uint64) map[audit.Kind]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, n := range r.untold {
		if lost == nil {
			lost = map[audit.Kind]uint64{}
		}
		lost[kind] += n
	}
	return lost
}

// byProfile says whose rule it is that refuses something.
func (r *run) byProfile(rule string) string {
	if strings.HasSuffix(rule, " is not granted") {
		return rule + " by profile " + r.plan.profile.Name
	}
	return rule
}

// explain says more exactly than the kernel could what an address or its name is not granted
// for. It is called with the lock.
func (r *run) explain(n *audit.Network) {
	n.Host = r.tally.egress.names[n.Address]
	if n.Decision != audit.Blocked || len(r.net.policy.Allow) == 0 || n.Rule != bpf.RuleNoGrant.String() {
		return
	}
	d := r.net.policy.Address(n.Address, n.Port, n.Protocol)
	if n.Host != "" {
		d = r.net.policy.Host(string(n.Host), n.Port)
	}
	switch {
	case !d.Allowed:
		n.Rule = r.byProfile(d.Rule)
	case n.Protocol == "udp":
		n.Rule = "a name is granted for tcp alone"
	}
}

// reconcile records what the kernel and the gateway do not agree on. It is called when both
// have told everything.
func (r *run) reconcile() error {
	lost, err := r.watch.LostByKind()
	if err != nil {
		r.log.Error("the kernel's counts are not known", "error", err)
	}
	r.mu.Lock()
	findings := r.tally.egress.findings(lost)
	r.mu.Unlock()
	var events []audit.Event
	for _, f := range findings {
		events = append(events, audit.Event{Run: r.id, Time: time.Now().UTC(), Kind: audit.KindFinding, Finding: &f})
		r.log.Warn("the kernel and the gateway do not agree", "what", f.What, "address", f.Address, "port", f.Port, "kernel", f.Kernel, "gateway", f.Gateway)
	}
	return r.take(events)
}

// describe is how a policy stands in the record.
func describe(p *egress.Policy) []string {
	rules := []string{}
	for _, g := range p.Allow {
		rules = append(rules, g.String())
	}
	for _, c := range p.Credentials {
		rules = append(rules, fmt.Sprintf("credential %s for %s", c.Name, c.Host))
	}
	return rules
}
