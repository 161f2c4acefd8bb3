package names

import (
	"cmp"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"
)

// maxEDEText bounds what an extended error says, so that every reply has room in 512 bytes.
const maxEDEText = 128

// pack makes the bytes of a reply of at most size bytes, in buf if it has room.
func (q *query) pack(rep *reply, size int, buf []byte) ([]byte, error) {
	m := &q.msg
	m.Rcode, m.Answer, m.Compress = rep.rcode, rep.answer, rep.answer != nil
	if rep.answer == nil && rep.ttl > 0 {
		m.Ns = []dns.RR{authority(rep.ttl)}
	}
	if q.opt != nil {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(udpSize)
		if q.opt.Do() {
			opt.SetDo()
		}
		if rep.ede != 0 {
			text := clip(cmp.Or(rep.text, rep.rule), maxEDEText)
			opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: rep.ede, ExtraText: text}}
		}
		m.Extra = []dns.RR{opt}
	}
	out, err := m.PackBuffer(buf)
	if err != nil || len(out) <= size {
		return out, err
	}
	m.Truncate(size)
	return m.PackBuffer(buf)
}

// size is how long a datagram the client takes.
func (q *query) size() int {
	if q.opt == nil {
		return dns.MinMsgSize
	}
	return min(max(int(q.opt.UDPSize()), dns.MinMsgSize), udpSize)
}

// authority is the SOA record by which a client knows how long there is nothing (RFC 2308). It
// is the root's, since there is no zone.
func authority(ttl time.Duration) *dns.SOA {
	s := uint32(ttl / time.Second)
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: s},
		Ns:  "proctor.invalid.", Mbox: ".", Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: s,
	}
}

// clip cuts s to n bytes at most, not inside a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// reverse is the address that a name under in-addr.arpa or ip6.arpa stands for.
func reverse(name string) (netip.Addr, bool) {
	if s, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		p := strings.Split(s, ".")
		if len(p) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(p[3] + "." + p[2] + "." + p[1] + "." + p[0])
		return a, err == nil
	}
	s, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(s) != 63 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := 62; i >= 0; i -= 2 {
		if i > 0 && s[i-1] != '.' {
			return netip.Addr{}, false
		}
		b.WriteByte(s[i])
		if n := 31 - i/2; n%4 == 3 && n < 31 {
			b.WriteByte(':')
		}
	}
	a, err := netip.ParseAddr(b.String())
	return a, err == nil
}
