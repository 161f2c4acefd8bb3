package names

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// A source says where a message came from and how.
type source struct {
	protocol string         // udp or tcp
	server   netip.AddrPort // that was asked
	client   netip.AddrPort
}

// A query is a message to the resolver, parsed.
type query struct {
	msg   dns.Msg
	opt   *dns.OPT
	asked string // the name's labels as they came, joined by dots, without the last dot; see setName
	name  string // asked in lower case, if it is a host name; otherwise empty
	qtype uint16
	fault fault
	over  int64 // how far beyond the run's limit it came; 0: within
}

// A fault is what is wrong with a message, so that it is not looked at any further.
type fault struct {
	rule  string
	rcode int
	mute  bool // nothing is answered
}

// parse reads a message of any content. It keeps nothing of packet.
func (q *query) parse(packet []byte) {
	if len(packet) < 12 {
		q.fault = fault{rule: "not a DNS message: shorter than its header", mute: true}
		return
	}
	// An error may leave the header unset. It decides whether there is an answer.
	word := func(i int) uint16 { return binary.BigEndian.Uint16(packet[2*i:]) }
	flags := word(1)
	header := dns.MsgHdr{
		Id: word(0), Response: true, Opcode: int(flags >> 11 & 0xf),
		RecursionDesired: flags&(1<<8) != 0, RecursionAvailable: true, CheckingDisabled: flags&(1<<4) != 0,
	}
	if flags&(1<<15) != 0 {
		// Two that answered each other's answers would not end.
		q.fault = fault{rule: "not a question: it says that it is an answer", mute: true}
		return
	}
	q.msg.MsgHdr = header
	switch questions, answers, authorities, extras := word(2), word(3), word(4), word(5); {
	case header.Opcode != dns.OpcodeQuery:
		q.fault = fault{rule: "not a question: opcode " + strconv.Itoa(header.Opcode), rcode: dns.RcodeNotImplemented}
	case questions != 1:
		q.fault = fault{rule: "a message has one question, not " + strconv.Itoa(int(questions)), rcode: dns.RcodeFormatError}
	case answers > 0 || authorities > 1 || extras > 2: // an IXFR has an SOA; a TSIG stands beside the OPT
		q.fault = fault{rule: "a question does not come with so many records", rcode: dns.RcodeFormatError}
	}
	if q.fault.rule != "" {
		return
	}
	if err := q.msg.Unpack(packet); err != nil || len(q.msg.Question) != 1 {
		q.fault = fault{rule: "not a DNS message: it can't be parsed", rcode: dns.RcodeFormatError}
		q.msg = dns.Msg{MsgHdr: header}
		return
	}
	extra := q.msg.Extra
	q.msg = dns.Msg{MsgHdr: header, Question: q.msg.Question}
	q.qtype = q.msg.Question[0].Qtype
	q.setName(q.msg.Question[0].Name)
	for _, rr := range extra {
		opt, ok := rr.(*dns.OPT)
		switch {
		case !ok:
		case q.opt != nil || opt.Hdr.Name != ".":
			q.fault = fault{rule: "a message has one EDNS record, of the root", rcode: dns.RcodeFormatError}
		default:
			q.opt = opt
		}
	}
	if q.fault.rule == "" {
		q.check()
	}
}

// check refuses the questions that have no answer whatever their name is.
func (q *query) check() {
	switch class := q.msg.Question[0].Qclass; {
	case q.opt != nil && q.opt.Version() != 0:
		q.fault = fault{rule: "EDNS has no version but 0 here", rcode: dns.RcodeBadVers}
	case class != dns.ClassINET:
		q.fault = fault{rule: "no class but IN is served", rcode: dns.RcodeRefused}
	case q.qtype == dns.TypeOPT || q.qtype == dns.TypeNone:
		q.fault = fault{rule: "the type can't be asked for", rcode: dns.RcodeFormatError}
	case q.qtype == dns.TypeAXFR || q.qtype == dns.TypeIXFR || q.qtype == dns.TypeMAILA || q.qtype == dns.TypeMAILB:
		q.fault = fault{rule: "there are no zones to transfer", rcode: dns.RcodeRefused}
	case q.qtype >= 128 && q.qtype < dns.TypeIXFR: // TKEY, TSIG and the like (RFC 6895, 3.1)
		q.fault = fault{rule: "types that are no data are not served", rcode: dns.RcodeNotImplemented}
	}
}

// setName takes a name as the library spells it, with escapes and the last dot. Bytes stand for
// themselves, but a dot inside a label as \. and a backslash as \\ (RFC 1035, 5.1): else the name would
// be told as another, of more labels.
func (q *query) setName(s string) {
	if strings.IndexByte(s, '\\') < 0 {
		q.asked = strings.TrimSuffix(s, ".")
		if lower := lowerASCII(q.asked); hostName(lower) {
			q.name = lower
		}
		return
	}
	// No host name has a byte that is escaped.
	raw := make([]byte, 0, len(s))
	add := func(c byte) {
		if c == '.' || c == '\\' {
			raw = append(raw, '\\')
		}
		raw = append(raw, c)
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			raw = append(raw, s[i])
			continue
		}
		if i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 10, 8); err == nil {
				add(byte(v))
				i += 3
				continue
			}
		}
		if i++; i < len(s) {
			add(s[i])
		}
	}
	q.asked = strings.TrimSuffix(string(raw), ".")
}

// lowerASCII leaves bytes beyond ASCII alone: in a name they are no letters.
func lowerASCII(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
