package supervisor

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
)

func at(pid uint32, e audit.Event) audit.Event {
	e.Process = &audit.Process{PID: pid}
	return e
}

func fork(pid, child uint32) audit.Event {
	return at(pid, audit.Event{Kind: audit.KindFork, Fork: &audit.Fork{Child: child}})
}

func exit(pid uint32, code int, signal string) audit.Event {
	return at(pid, audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Code: code, Signal: signal}})
}

func oom(pid uint32) audit.Event { return at(pid, audit.Event{Kind: audit.KindOOM}) }

func open(access audit.Access, errno string) audit.Event {
	return at(2, audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Access: access, Errno: errno}})
}

func attempt(kind audit.Kind, protocol, address string, port uint16, d audit.Decision, rule string) audit.Event {
	return at(2, audit.Event{Kind: kind, Net: &audit.Network{Protocol: protocol, Address: netip.MustParseAddr(address), Port: port, Decision: d, Rule: rule}})
}

func sumUp(events ...audit.Event) *tally {
	t := newTally()
	for i := range events {
		t.add(&events[i])
	}
	return t
}

func TestTallyMainProcess(t *testing.T) {
	for _, test := range []struct {
		name    string
		events  []audit.Event
		exit    *audit.Exit
		oom     int64
		mainOOM bool
	}{
		{"nothing", nil, nil, 0, false},
		{"its exit", []audit.Event{fork(1, 2), exit(2, 3, "")}, &audit.Exit{Code: 3}, 0, false},
		{"its signal", []audit.Event{fork(1, 7), exit(7, 0, "SIGKILL")}, &audit.Exit{Signal: "SIGKILL"}, 0, false},
		{"a child's exit is not", []audit.Event{fork(1, 2), fork(2, 3), exit(3, 9, ""), exit(2, 1, "")}, &audit.Exit{Code: 1}, 0, false},
		{"nor init's", []audit.Event{fork(1, 2), exit(1, 9, "")}, nil, 0, false},
		{"nor that of who bears its number later", []audit.Event{fork(1, 2), exit(2, 1, ""), fork(3, 2), exit(2, 9, "")}, &audit.Exit{Code: 1}, 0, false},
		{"a fork of another comes first", []audit.Event{fork(5, 6), fork(1, 2), exit(6, 9, ""), exit(2, 1, "")}, &audit.Exit{Code: 1}, 0, false},
		{"init's first fork counts", []audit.Event{fork(1, 2), fork(1, 3), exit(3, 9, ""), exit(2, 1, "")}, &audit.Exit{Code: 1}, 0, false},
		{"without the fork nothing is known", []audit.Event{exit(2, 1, ""), exit(0, 1, "")}, nil, 0, false},
		{"oom of the main process", []audit.Event{fork(1, 2), oom(2), exit(2, 0, "SIGKILL")}, &audit.Exit{Signal: "SIGKILL"}, 1, true},
		{"oom of a child", []audit.Event{fork(1, 2), fork(2, 3), oom(3), exit(2, 1, "")}, &audit.Exit{Code: 1}, 1, false},
		{"oom of both", []audit.Event{fork(1, 2), oom(3), oom(2), oom(4)}, nil, 3, true},
		{"oom with the fork unknown", []audit.Event{oom(0), oom(2)}, nil, 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := sumUp(test.events...)
			if diff := cmp.Diff(test.exit, got.exit); diff != "" {
				t.Error(diff)
			}
			if got.oom != test.oom || got.mainOOM != test.mainOOM {
				t.Errorf("oom %d, of the main process %v; want %d, %v", got.oom, got.mainOOM, test.oom, test.mainOOM)
			}
		})
	}
}

func TestTallyFiles(t *testing.T) {
	got := sumUp(
		open(audit.AccessRead, ""), open(audit.AccessRead, ""), open(audit.AccessRead, "ENOENT"),
		open(audit.AccessWrite, ""), open(audit.AccessBoth, ""), open(audit.AccessWrite, "EROFS"), open(audit.AccessPath, ""),
	)
	if want := (audit.FileCounts{Read: 2, Written: 2}); got.files != want {
		t.Errorf("got %+v, want %+v", got.files, want)
	}
}

func TestTallyEgress(t *testing.T) {
	const none = "no network granted"
	got := sumUp(
		attempt(audit.KindConnect, "tcp", "198.51.100.7", 443, audit.Blocked, none),
		attempt(audit.KindSend, "udp", "192.0.2.53", 53, audit.Blocked, none),
		attempt(audit.KindSend, "udp", "192.0.2.53", 53, audit.Blocked, none),
		attempt(audit.KindConnect, "udp", "192.0.2.53", 53, audit.Blocked, none),
		attempt(audit.KindConnect, "tcp", "198.51.100.7", 80, audit.Blocked, none),
		attempt(audit.KindConnect, "tcp", "2001:db8::5", 80, audit.Blocked, none),
		attempt(audit.KindConnect, "tcp", "2001:db8::5", 80, audit.Blocked, "another"),
		attempt(audit.KindConnect, "tcp", "127.0.0.1", 80, audit.Blocked, "no policy"),
		attempt(audit.KindConnect, "tcp", "127.0.0.1", 8080, audit.Allowed, "loopback"),
		attempt(audit.KindConnect, "tcp", "0.0.0.0", 8080, audit.Allowed, "loopback"),
		attempt(audit.KindSend, "udp", "::1", 53, audit.Allowed, "loopback"),
		// Of what the kernel lets through to the gateway, that has the last word.
		attempt(audit.KindConnect, "tcp", "203.0.113.9", 443, audit.Allowed, "granted"),
		audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Protocol: "tcp", Address: netip.MustParseAddr("203.0.113.9"), Port: 443, Decision: audit.Allowed, Rule: "203.0.113.0/24:443/tcp"}},
		attempt(audit.KindConnect, "tcp", "198.18.1.1", 443, audit.Allowed, "granted"),
		audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Protocol: "tcp", Address: netip.MustParseAddr("198.18.1.1"), Port: 443, Name: "api.example", Claimed: "other.example", Decision: audit.Blocked, Rule: "not the name"}},
		audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Protocol: "tcp", Address: netip.MustParseAddr("198.18.1.1"), Port: 443, Name: "api.example", Decision: audit.Blocked, Rule: "limits.connections", Count: 40}},
		audit.Event{Kind: audit.KindQuery, Query: &audit.Query{Name: "files.pythonhosted.org", Type: "A", Decision: audit.Blocked, Rule: "not granted"}},
		audit.Event{Kind: audit.KindQuery, Query: &audit.Query{Name: "files.pythonhosted.org", Type: "AAAA", Decision: audit.Blocked, Rule: "not granted"}},
		audit.Event{Kind: audit.KindQuery, Query: &audit.Query{Name: "api.example", Type: "A", Decision: audit.Allowed, Rule: "api.example:443", Answers: []netip.Addr{netip.MustParseAddr("198.18.1.1")}}},
	).destinations()
	to := func(address string, port uint16, protocol string, n int64, rule string) audit.Destination {
		return audit.Destination{Address: netip.MustParseAddr(address), Port: port, Protocol: protocol, Count: n, Rule: rule}
	}
	want := audit.Egress{
		Allowed: []audit.Destination{to("203.0.113.9", 443, "tcp", 1, "203.0.113.0/24:443/tcp")},
		Blocked: []audit.Destination{
			{Name: "api.example", Address: netip.MustParseAddr("198.18.1.1"), Port: 443, Protocol: "tcp", Count: 40, Rule: "limits.connections"},
			to("192.0.2.53", 53, "udp", 3, none),
			{Name: "files.pythonhosted.org", Port: 53, Protocol: "dns", Count: 2, Rule: "not granted", Remedy: wellKnown[0].remedy},
			to("127.0.0.1", 80, "tcp", 1, "no policy"),
			to("198.51.100.7", 80, "tcp", 1, none),
			to("198.51.100.7", 443, "tcp", 1, none),
			to("2001:db8::5", 80, "tcp", 1, "another"),
			to("2001:db8::5", 80, "tcp", 1, none),
			{Name: "api.example", Address: netip.MustParseAddr("198.18.1.1"), Port: 443, Protocol: "tcp", Count: 1, Rule: "not the name"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// A scan of many destinations does not make a verdict of many megabytes.
func TestTallyBoundsDestinations(t *testing.T) {
	tally := newTally()
	for i := range 3 * maxDestinations {
		e := attempt(audit.KindConnect, "tcp", "198.51.100.7", uint16(i), audit.Blocked, "no network granted")
		tally.add(&e)
	}
	again := attempt(audit.KindConnect, "tcp", "198.51.100.7", 5, audit.Blocked, "no network granted")
	tally.add(&again)
	blocked := tally.destinations().Blocked
	if len(blocked) != maxDestinations {
		t.Errorf("%d destinations, want %d", len(blocked), maxDestinations)
	}
	if more := tally.destinations().BlockedMore; more != 2*maxDestinations {
		t.Errorf("%d more, want %d", more, 2*maxDestinations)
	}
	if blocked[0].Port != 5 || blocked[0].Count != 2 {
		t.Errorf("first is %+v", blocked[0])
	}
}
