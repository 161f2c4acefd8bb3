package oracle

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proctor/audit"
)

var outside = netip.MustParseAddr("192.0.2.1")

func TestExpectedNetwork(t *testing.T) {
	const (
		near  = "{sa_family=AF_INET, sin_port=htons(4660), sin_addr=inet_addr('127.0.0.1')}"
		away  = "{sa_family=AF_INET, sin_port=htons(4660), sin_addr=inet_addr('192.0.2.1')}"
		near6 = "{sa_family=AF_INET6, sin6_port=htons(4660), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, '::1', &sin6_addr), sin6_scope_id=0}"
		v4in6 = "{sa_family=AF_INET6, sin6_port=htons(4660), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, '::ffff:192.0.2.1', &sin6_addr), sin6_scope_id=0}"
		eperm = " = -1 EPERM (Operation not permitted)"
	)
	message := func(to string) string {
		return "{msg_name=" + to + ", msg_namelen=16, msg_iov=[{iov_base='x', iov_len=1}], msg_iovlen=1, msg_controllen=0, msg_flags=0}"
	}
	attempt := func(kind audit.Kind, protocol, to string, blocked, mapped bool) audit.Event {
		n := &audit.Network{Protocol: protocol, Address: netip.MustParseAddr(to), Port: 4660, Decision: audit.Allowed, Rule: "loopback", Mapped: mapped}
		if blocked {
			n.Decision, n.Rule = audit.Blocked, "no network granted"
		}
		return audit.Event{Kind: kind, Net: n}
	}
	type events = []audit.Event
	for _, tt := range []struct {
		name  string
		calls []string
		want  events
	}{
		{"closed port", []string{"connect(3<TCP:[7]>, " + near + ", 16) = -1 ECONNREFUSED (Connection refused)"},
			events{attempt(audit.KindConnect, "tcp", "127.0.0.1", false, false)}},
		{"away", []string{"connect(3<UDP:[7]>, " + away + ", 16)" + eperm},
			events{attempt(audit.KindConnect, "udp", "192.0.2.1", true, false)}},
		{"version 6", []string{"connect(3<TCPv6:[7]>, " + near6 + ", 28) = 0"},
			events{attempt(audit.KindConnect, "tcp", "::1", false, false)}},
		{"version 4 in 6", []string{"connect(3<TCPv6:[7]>, " + v4in6 + ", 28)" + eperm},
			events{attempt(audit.KindConnect, "tcp", "192.0.2.1", true, true)}},
		{"version 4 on 6", []string{"connect(3<UDPv6:[7]>, " + near + ", 16) = 0"},
			events{attempt(audit.KindConnect, "udp", "127.0.0.1", false, false)}},
		{"datagram, version 4 on 6", []string{"sendto(3<UDPv6:[7]>, 'x', 1, 0, " + near + ", 16) = 1"},
			events{attempt(audit.KindSend, "udp", "127.0.0.1", false, true)}},
		{"asked again", []string{
			"connect(3<TCP:[7]>, " + near + ", 16) = -1 EINPROGRESS (Operation now in progress)",
			"connect(3<TCP:[7]>, " + near + ", 16) = -1 EALREADY (Operation already in progress)",
			"connect(3<TCP:[7]>, " + near + ", 16) = 0",
			"connect(3<TCP:[7]>, " + near + ", 16) = -1 EISCONN (Transport endpoint is already connected)",
		}, events{attempt(audit.KindConnect, "tcp", "127.0.0.1", false, false)}},
		{"tried again", []string{
			"connect(3<TCP:[7]>, " + near + ", 16) = -1 EINPROGRESS (Operation now in progress)",
			"connect(3<TCP:[7]>, " + near + ", 16) = -1 ECONNREFUSED (Connection refused)",
			"connect(3<TCP:[7]>, " + near + ", 16) = -1 ECONNREFUSED (Connection refused)",
			"connect(4<TCP:[8]>, " + near + ", 16) = 0",
		}, events{
			attempt(audit.KindConnect, "tcp", "127.0.0.1", false, false), attempt(audit.KindConnect, "tcp", "127.0.0.1", false, false),
			attempt(audit.KindConnect, "tcp", "127.0.0.1", false, false),
		}},
		{"messages", []string{"sendmsg(3<UDP:[7]>, " + message(near) + ", 0) = 1", "sendmsg(3<UDP:[7]>, " + message("NULL") + ", 0) = 1"},
			events{attempt(audit.KindSend, "udp", "127.0.0.1", false, false)}},
		{"the third can't be sent", []string{"sendmmsg(3<UDP:[7]>, [{msg_hdr=" + message(near) + ", msg_len=1}, {msg_hdr=" + message(near) + ", msg_len=1}, {msg_hdr=" + message(away) + "}, {msg_hdr=" + message(away) + "}], 4, 0) = 2"},
			events{
				attempt(audit.KindSend, "udp", "127.0.0.1", false, false), attempt(audit.KindSend, "udp", "127.0.0.1", false, false),
				attempt(audit.KindSend, "udp", "192.0.2.1", true, false),
			}},
		{"the first can't be sent", []string{"sendmmsg(3<UDP:[7]>, [{msg_hdr=" + message(away) + "}, {msg_hdr=" + message(near) + "}], 2, 0)" + eperm},
			events{attempt(audit.KindSend, "udp", "192.0.2.1", true, false)}},
		{"fast open", []string{"sendto(3<TCP:[7]>, 'x', 1, MSG_FASTOPEN, " + away + ", 16)" + eperm},
			events{attempt(audit.KindConnect, "tcp", "192.0.2.1", true, false)}},
		{"no attempts", []string{
			"connect(3<UDP:[7]>, {sa_family=AF_UNSPEC, sa_data=''}, 16) = 0",
			"connect(3<UNIX-STREAM:[7]>, {sa_family=AF_UNIX, sun_path='/s'}, 5) = 0",
			"connect(9, " + near + ", 16) = -1 EBADF (Bad file descriptor)",
			"sendto(3<NETLINK:[7]>, [{nlmsg_len=20}, ''], 20, 0, {sa_family=AF_NETLINK, nl_pid=0}, 12) = 20",
			"sendto(3<UDP:[7]>, 'x', 1, 0, NULL, 0) = 1",
			"sendto(3<TCP:[7]>, 'x', 1, 0, " + away + ", 16) = 1",
			"connect(3<TCP:[7]>, " + near + ", 16) = ?",
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := expected(t, network, tt.calls...)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(audit.Event{}, "Process"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
