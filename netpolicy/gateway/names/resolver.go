package names

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"proctor/audit"
)

// Options are those of [NewResolver].
type Options struct {
	Policy   Policy    // what is granted
	Table    *Table    // where granted names get their addresses
	Upstream *Upstream // whom to ask whether a granted name exists
	Recorder Recorder

	Queries int           // answered in all, the rest is refused; default 10,000
	Streams int           // TCP connections at a time; default 64
	Idle    time.Duration // after which a stream without a whole question is closed; default 10 s
	Waiting int           // datagrams that wait for the host's resolvers at a time; default 256
	// Wait is how long the host's resolvers may take over one question; default 4.5 s, since C
	// libraries give up a question after 5 s, and should have heard why by then.
	Wait time.Duration
}

// A Resolver answers the questions of one run.
type Resolver struct {
	opts  Options
	asked atomic.Int64 // messages, and streams without any
	wait  chan struct{}
	slots chan struct{} // one for each stream
}

// NewResolver makes a resolver that serves nothing yet.
func NewResolver(o Options) (*Resolver, error) {
	if o.Policy == nil || o.Table == nil || o.Upstream == nil || o.Recorder == nil {
		return nil, errors.New("resolver: need a policy, a table, an upstream and a recorder")
	}
	o.Queries = orDefault(o.Queries, 10_000)
	o.Streams = orDefault(o.Streams, 64)
	o.Idle = orDefault(o.Idle, 10*time.Second)
	o.Waiting = orDefault(o.Waiting, 256)
	o.Wait = orDefault(o.Wait, 4500*time.Millisecond)
	return &Resolver{opts: o, wait: make(chan struct{}, o.Waiting), slots: make(chan struct{}, o.Streams)}, nil
}

// Asked is how many messages, and streams that brought none, have come so far. Of those beyond
// [Options.Queries] only the first, the tenth, the hundredth and so on have a record.
func (r *Resolver) Asked() int64 { return r.asked.Load() }

const (
	// refusalTTL is how long a client may remember that a name is not granted.
	refusalTTL = time.Minute
	minTTL     = time.Second
	maxReply   = 5 * time.Minute // the TTL of an answer at most
	localTTL   = time.Hour
)

// A reply is what is answered and what is recorded.
type reply struct {
	rcode   int
	answer  []dns.RR
	ttl     time.Duration // of what does not exist
	ede     uint16        // extended error; zero: none
	allowed bool
	rule    string
	text    string // of the extended error; default: rule
	addrs   []netip.Addr
	mute    bool
}

// receive counts and parses a message.
func (r *Resolver) receive(packet []byte) *query {
	q := &query{over: r.count()}
	q.parse(packet)
	return q
}

// count says how far beyond the limit the message that has come is.
func (r *Resolver) count() int64 { return max(0, r.asked.Add(1)-int64(r.opts.Queries)) }

// judge answers what can be answered at once. Otherwise the host's resolvers must be asked, and
// lookup does that.
func (r *Resolver) judge(q *query) (rep reply, done bool) {
	if q.over > 0 {
		rule := fmt.Sprintf("limits.queries allows %d questions; this is number %d beyond", r.opts.Queries, q.over)
		return reply{rcode: dns.RcodeRefused, mute: q.fault.mute, ede: dns.ExtendedErrorCodeProhibited, rule: rule}, true
	}
	if q.fault.rule != "" {
		return reply{rcode: q.fault.rcode, mute: q.fault.mute, rule: q.fault.rule}, true
	}
	switch {
	case q.asked == "":
		return reply{ttl: refusalTTL, rule: "the root is no host name"}, true
	case q.name == "":
		return blocked("not a host name"), true // which stands beside it: here it would be escaped twice
	case q.name == "localhost" || strings.HasSuffix(q.name, ".localhost"):
		return local(q), true
	case strings.HasSuffix(q.name, ".arpa"):
		if a, ok := reverse(q.name); ok {
			return r.pointer(q, a), true
		}
	}
	d := r.opts.Policy.Granted(q.name)
	if !d.Allowed {
		return blocked(d.Rule), true
	}
	rep = reply{allowed: true, rule: d.Rule, ttl: refusalTTL}
	switch q.qtype {
	case dns.TypeA, dns.TypeAAAA:
	case dns.TypeANY: // RFC 8482
		h := dns.RR_Header{Name: q.msg.Question[0].Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: uint32(localTTL / time.Second)}
		rep.answer = []dns.RR{&dns.HINFO{Hdr: h, Cpu: "RFC8482"}}
		return rep, true
	default:
		// Without HTTPS and SVCB records, clients go by the addresses.
		return rep, true
	}
	// From here on the name leaves the host, which is what the limit on names is about.
	v4, v6, ok := r.opts.Table.Grant(q.name, d.Grant)
	if !ok {
		return blocked(fmt.Sprintf("%s, and no more names: limits.names allows %d under wildcards", d.Rule, r.opts.Table.Limit())), true
	}
	rep.addrs = []netip.Addr{v4}
	if q.qtype == dns.TypeAAAA {
		rep.addrs[0] = v6
	}
	a, ok, err := r.opts.Upstream.known(q.name)
	if !ok {
		return rep, false
	}
	return r.resolved(q, rep, a, err), true
}

// lookup finishes what judge began.
func (r *Resolver) lookup(ctx context.Context, q *query, rep reply) reply {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Wait)
	defer cancel()
	a, err := r.opts.Upstream.either(ctx, q.name, 0)
	return r.resolved(q, rep, a, err)
}

// resolved answers with the synthetic address that judge chose, if the name has any outside.
func (r *Resolver) resolved(q *query, rep reply, a Answer, err error) reply {
	ttl := min(max(a.TTL, minTTL), maxReply)
	switch {
	case err != nil:
		rep.rcode, rep.addrs, rep.ttl = dns.RcodeServerFailure, nil, 0
		// Whom the host asks is not the run's to know, so it is not the error's own text.
		rep.ede, rep.text = dns.ExtendedErrorCodeNoReachableAuthority, ErrNoResolver.Error()
		if errors.Is(err, ErrResolver) {
			rep.ede, rep.text = dns.ExtendedErrorCodeNetworkError, ErrResolver.Error()
		}
	case a.Status == Found:
		rep.answer = []dns.RR{address(q, rep.addrs[0], ttl)}
	default:
		rep.addrs, rep.ttl = nil, ttl
		if a.Status == NoName {
			rep.rcode = dns.RcodeNameError
		}
	}
	return rep
}

// blocked is the answer to what is not granted. The name does not exist: clients retry on, or
// turn to another server for, anything else.
func blocked(rule string) reply {
	return reply{rcode: dns.RcodeNameError, ttl: refusalTTL, ede: dns.ExtendedErrorCodeBlocked, rule: rule}
}

// local answers for the run itself (RFC 6761, 6.3).
func local(q *query) reply {
	rep := reply{allowed: true, rule: "localhost is the run itself", ttl: localTTL}
	switch q.qtype {
	case dns.TypeA:
		rep.addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	case dns.TypeAAAA:
		rep.addrs = []netip.Addr{netip.IPv6Loopback()}
	default:
		return rep
	}
	rep.answer = []dns.RR{address(q, rep.addrs[0], localTTL)}
	return rep
}

// pointer answers for the name of an address.
func (r *Resolver) pointer(q *query, a netip.Addr) reply {
	name, ok := r.opts.Table.Name(a)
	if a.IsLoopback() {
		name, ok = "localhost", true
	}
	if !ok {
		return blocked(fmt.Sprintf("no name of this run stands for %s", a))
	}
	rep := reply{allowed: true, rule: fmt.Sprintf("%s stands for %s", a, name), ttl: localTTL}
	if q.qtype == dns.TypePTR {
		h := dns.RR_Header{Name: q.msg.Question[0].Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: uint32(localTTL / time.Second)}
		rep.answer = []dns.RR{&dns.PTR{Hdr: h, Ptr: name + "."}}
	}
	return rep
}

func address(q *query, a netip.Addr, ttl time.Duration) dns.RR {
	h := dns.RR_Header{Name: q.msg.Question[0].Name, Class: dns.ClassINET, Ttl: uint32(ttl / time.Second)}
	if a.Is4() {
		h.Rrtype = dns.TypeA
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	h.Rrtype = dns.TypeAAAA
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}

// note records what came of a message. Beyond the run's limit most have no record: it is the
// run that decides how many there are.
func (r *Resolver) note(q *query, rep *reply, src source) {
	if !milestone(q.over) {
		return
	}
	record := audit.Query{
		Name: audit.Text(q.asked), Protocol: src.protocol, Server: src.server, From: src.client.Addr().Unmap(), Client: src.client.Port(),
		Decision: audit.Blocked, Rule: rep.rule, Answers: rep.addrs,
	}
	if len(q.msg.Question) > 0 {
		record.Type = dns.Type(q.qtype).String()
	}
	if rep.allowed {
		record.Decision = audit.Allowed
	}
	if !rep.mute {
		record.Code = codeName(rep.rcode)
	}
	r.opts.Recorder.Query(record)
}

// milestone is true of 0, 1, 10, 100 and so on.
func milestone(n int64) bool {
	for n > 0 && n%10 == 0 {
		n /= 10
	}
	return n <= 1
}

func codeName(rcode int) string {
	if rcode == dns.RcodeBadVers {
		return "BADVERS"
	}
	if s, ok := dns.RcodeToString[rcode]; ok {
		return s
	}
	return fmt.Sprintf("RCODE%d", rcode)
}
