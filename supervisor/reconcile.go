package supervisor

import (
	"net/netip"
	"slices"

	"proctor/audit"
	"proctor/bpf"
	"proctor/netpolicy"
)

// A reconciliation holds what the kernel let through against what reached the gateway. Each
// connection must be told by both.
type reconciliation struct {
	names map[netip.Addr]audit.Text // what addresses stand for, as the resolver answered
	seen  map[netip.AddrPort]*sides // connections
	// loose: not every one has a record of its own, so that the sums alone can be compared.
	loose bool
}

type sides struct{ kernel, gateway int64 }

// maxReconciled bounds the destinations that are held against each other.
const maxReconciled = 10_000

func newReconciliation() reconciliation {
	return reconciliation{names: map[netip.Addr]audit.Text{}, seen: map[netip.AddrPort]*sides{}}
}

func (r *reconciliation) sides(a netip.Addr, port uint16) *sides {
	at := netip.AddrPortFrom(a, port)
	s := r.seen[at]
	if s == nil {
		if len(r.seen) == maxReconciled {
			r.loose = true
			return &sides{}
		}
		s = &sides{}
		r.seen[at] = s
	}
	return s
}

// kernel takes in a connect. Datagrams are not counted: one that is sent on a socket that is
// connected is no call of its own.
func (r *reconciliation) kernel(e *audit.Event) {
	n := e.Net
	if e.Kind != audit.KindConnect || n.Protocol != "tcp" || n.Decision != audit.Allowed || n.Port == netpolicy.DNS {
		return
	}
	if n.Rule != bpf.RuleGranted.String() && n.Rule != bpf.RuleProxy.String() {
		return
	}
	r.sides(n.Address, n.Port).kernel += int64(e.Acts())
}

func (r *reconciliation) query(q *audit.Query) {
	for _, a := range q.Answers {
		if a.IsLoopback() {
			continue // of localhost and all names under it: it stands for none of them
		}
		if len(r.names) < maxReconciled {
			r.names[a] = q.Name
		}
	}
}

func (r *reconciliation) flow(f *audit.Flow) {
	if f.Protocol != "tcp" {
		return
	}
	r.loose = r.loose || f.Count > 1
	at := netip.AddrPortFrom(f.Address, f.Port)
	if f.Proxy {
		at = netpolicy.Proxy // whatever it was asked for
	}
	r.sides(at.Addr(), at.Port()).gateway += max(1, f.Count)
}

// findings are the destinations of which the two tell different stories. Where events of the
// kernel's are lost, that the gateway knows more proves nothing, and the verdict says so already.
func (r *reconciliation) findings(lost map[audit.Kind]uint64) []audit.Finding {
	all := r.differences()
	if lost[audit.KindConnect] > 0 {
		all = slices.DeleteFunc(all, func(f audit.Finding) bool { return f.Gateway > f.Kernel })
	}
	return all
}

func (r *reconciliation) differences() []audit.Finding {
	var all []audit.Finding
	var sum sides
	for at, s := range r.seen {
		sum.kernel, sum.gateway = sum.kernel+s.kernel, sum.gateway+s.gateway
		if s.kernel != s.gateway {
			all = append(all, finding(at, *s))
		}
	}
	switch {
	case !r.loose:
		return all
	case sum.kernel == sum.gateway:
		return nil
	}
	return []audit.Finding{finding(netip.AddrPort{}, sum)}
}

func finding(at netip.AddrPort, s sides) audit.Finding {
	what := "connections that the gateway does not know"
	if s.gateway > s.kernel {
		what = "connections that the kernel does not know"
	}
	return audit.Finding{What: what, Protocol: "tcp", Address: at.Addr(), Port: at.Port(), Kernel: s.kernel, Gateway: s.gateway}
}
