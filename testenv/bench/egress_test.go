package bench

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"proctor/bpf"
	"proctor/netpolicy"
	"proctor/netpolicy/egress"
	"proctor/netpolicy/wire"
	"proctor/supervisor/cgroup"
	"proctor/supervisor/container"
	"proctor/testenv"
)

// A run is the network of one, without a box: a namespace all addresses of which lead to a
// gateway's process, and a cgroup that is watched and granted what the policy grants.
type run struct {
	netns, cgroup *os.File
	ca            []byte // of its gateway
	resolver      string
}

const theSecret = "s3cr3t-of-the-operator-0123456789"

// policy grants apiHost, and the addresses that it has, which are not public.
func policy(credentials ...egress.Credential) egress.Policy {
	return egress.Policy{
		Allow: []egress.Grant{
			{Host: apiHost, Ports: []uint16{443}},
			{CIDR: outside, Ports: []uint16{443}, Protocol: "tcp"},
		},
		Credentials: credentials,
		Limits:      egress.Limits{BytesUp: 1 << 50, BytesDown: 1 << 50},
	}
}

func (w *world) newRun(b *testing.B, p egress.Policy) *run {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	check := func(err error) {
		if err != nil {
			b.Error(err)
		}
	}
	dir := testenv.Dir(b)
	r := &run{resolver: netip.AddrPortFrom(netpolicy.Resolver, netpolicy.DNS).String()}
	ns, err := netpolicy.NewNamespace(filepath.Join(dir, "netns"), "run")
	must(err)
	b.Cleanup(func() { check(ns.Close()) })
	r.netns, err = os.Open(ns.Path())
	must(err)
	b.Cleanup(func() { r.netns.Close() })

	groups, err := cgroup.Detect()
	must(err)
	parent := groups.Unified(testenv.Cgroup(b))
	must(os.Mkdir(parent, 0o755))
	group := filepath.Join(parent, "run")
	must(os.Mkdir(group, 0o755))
	b.Cleanup(func() { check(os.Remove(group)) })
	r.cgroup, err = os.Open(group)
	must(err)
	b.Cleanup(func() { r.cgroup.Close() })
	id, err := bpf.CgroupID(group)
	must(err)

	programs := testenv.Programs(b)
	sensor, err := bpf.Open(bpf.Options{
		Cgroup: parent, Dir: filepath.Join(dir, "kernel"), Permitted: container.Permitted(),
		Own: []netip.Addr{netpolicy.Own4, netpolicy.Own6},
	})
	must(err)
	b.Cleanup(func() {
		check(sensor.Remove())
		testenv.WaitPrograms(b, programs)
	})
	sockets, err := ns.Sockets(nil)
	must(err)
	r.steer(b, sensor, sockets)
	r.watch(b, sensor, id)

	gateway, err := netpolicy.StartGateway(b.Context(), netpolicy.GatewayOptions{
		Binary: filepath.Join(testenv.BinDir(b), "proctor-gateway"), Sockets: sockets, Report: func(wire.Report) {},
		Config: wire.Config{
			Run: "bench", Policy: p, Secrets: map[string][]byte{"key": []byte(theSecret)},
			Resolvers: []netip.AddrPort{w.resolver}, Roots: w.ca, Proxy: netpolicy.Proxy, Own: []netip.Addr{netpolicy.Own4, netpolicy.Own6},
		},
	})
	must(err)
	b.Cleanup(func() { check(gateway.Close()) })
	r.ca = gateway.CA()
	return r
}

func (r *run) steer(b *testing.B, sensor *bpf.Sensor, sockets []netpolicy.Socket) {
	b.Helper()
	var to []bpf.Destination
	for _, s := range sockets {
		raw, err := s.File.SyscallConn()
		if err != nil {
			b.Fatal(err)
		}
		to = append(to, bpf.Destination{Protocol: s.Protocol, Family: s.Family, Port: s.Port, Socket: raw})
	}
	steering, err := sensor.Steer(r.netns, to)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := steering.Close(); err != nil {
			b.Error(err)
		}
	})
}

// watch grants the cgroup what the gateway serves, and reads its record.
func (r *run) watch(b *testing.B, sensor *bpf.Sensor, id uint64) {
	b.Helper()
	port := func(number uint16, protocol string, rule bpf.Rule) []bpf.Port {
		return []bpf.Port{{Number: number, Protocol: protocol, Rule: rule}}
	}
	watch, err := sensor.Watch(bpf.WatchOptions{Run: "bench", CgroupID: id, RingBytes: 4 << 20, Grants: []bpf.Grant{
		{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Ports: port(netpolicy.DNS, "udp", bpf.RuleResolver)},
		{Prefix: outside, Ports: port(443, "tcp", bpf.RuleGranted)},
		{Prefix: egress.Synthetic4, Named: true, Ports: port(443, "tcp", bpf.RuleGranted)},
	}})
	if err != nil {
		b.Fatal(err)
	}
	if err := watch.Arm(); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			_, _ = watch.Read(ctx)
		}
	})
	b.Cleanup(func() {
		stop()
		reading.Wait()
		if err := watch.Close(); err != nil {
			b.Error(err)
		}
	})
}
