package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

var network = comparer{
	kinds:  []audit.Kind{audit.KindConnect, audit.KindSend},
	calls:  []string{"connect", "sendto", "sendmsg", "sendmmsg"},
	expect: expectNetwork,
}

func expectNetwork(w *world, by actor, s strace.Step) ([]audit.Event, error) {
	c := s.Call
	if c == nil || !c.Returned() {
		return nil, nil
	}
	if asked, err := w.asksAgain(c); asked || err != nil || notAttempted(c) {
		return nil, err
	}
	protocol, version, err := socketOf(c)
	if err != nil || protocol == "" || protocol == "tcp" && c.Name != "connect" && !fastOpen(c) {
		return nil, err // the address of a datagram has no meaning on a connection
	}
	tries, err := attempts(c)
	if err != nil {
		return nil, err
	}
	var events []audit.Event
	for _, try := range tries {
		to, err := destination(try.address)
		if err != nil {
			return nil, err
		}
		if !to.address.IsValid() {
			continue
		}
		e := by.event(audit.KindSend)
		if c.Name == "connect" || protocol == "tcp" {
			e.Kind = audit.KindConnect
		}
		plain := to.address.Unmap()
		e.Net = &audit.Network{
			Protocol: protocol, Address: plain, Port: to.port, Mapped: mapped(e.Kind, version, to.address),
			Decision: audit.Allowed, Rule: "loopback",
		}
		if c.Errno == "EPERM" || try.last && !plain.IsLoopback() {
			e.Net.Decision, e.Net.Rule = audit.Blocked, "no network granted"
		}
		events = append(events, e)
	}
	return events, nil
}

// socketOf says what the call's socket is: tcp or udp, of IP version 4 or 6; nothing where
// it is none that reaches addresses.
func socketOf(c *strace.Call) (protocol string, version int, err error) {
	socket, err := strace.ReadDescriptor(c.Args[0])
	if err != nil {
		return "", 0, err
	}
	switch name, _, _ := strings.Cut(socket.Name, ":"); name {
	case "TCP":
		return "tcp", 4, nil
	case "TCPv6":
		return "tcp", 6, nil
	case "UDP":
		return "udp", 4, nil
	case "UDPv6":
		return "udp", 6, nil
	default:
		return "", 0, notInternet(name)
	}
}

// A try is one attempt of a call to reach an address.
type try struct {
	address string // as it is printed
	last    bool   // of several, the one that failed, of which no error is returned
}

// attempts returns what a call tried.
func attempts(c *strace.Call) ([]try, error) {
	switch {
	case c.Name == "connect" && len(c.Args) == 3:
		return []try{{address: c.Args[1]}}, nil
	case c.Name == "sendto" && len(c.Args) == 6:
		return []try{{address: c.Args[4]}}, nil
	case c.Name == "sendmsg" && len(c.Args) == 3:
		message, err := strace.Struct(c.Args[1])
		return []try{{address: message["msg_name"]}}, err
	case c.Name == "sendmmsg" && len(c.Args) == 4:
		return batch(c)
	}
	return nil, errors.New("arguments are missing")
}

// batch returns the messages of a sendmmsg that were sent, and the one that could not be.
func batch(c *strace.Call) ([]try, error) {
	list, err := strace.List(c.Args[1])
	if err != nil {
		return nil, err
	}
	sent := 0
	if c.Succeeded() {
		if sent, err = strconv.Atoi(c.Result); err != nil {
			return nil, err
		}
	}
	var tries []try
	for i, m := range list[:min(sent+1, len(list))] {
		outer, err := strace.Struct(m)
		if err != nil {
			return nil, err
		}
		message, err := strace.Struct(outer["msg_hdr"])
		if err != nil {
			return nil, err
		}
		tries = append(tries, try{message["msg_name"], c.Succeeded() && i == sent})
	}
	return tries, nil
}

type endpoint struct {
	address netip.Addr // as the caller wrote it; invalid where there is none to reach
	port    uint16
}

// destination reads a printed address. NULL and AF_UNSPEC are none.
func destination(text string) (endpoint, error) {
	if !strings.HasPrefix(text, "{") {
		return endpoint{}, nil
	}
	fields, err := strace.Struct(text)
	if err != nil {
		return endpoint{}, err
	}
	var port, address string
	switch fields["sa_family"] {
	case "AF_INET":
		port, address = fields["sin_port"], argument(fields["sin_addr"], 0)
	case "AF_INET6":
		port, address = fields["sin6_port"], argument(fields["inet_pton"], 1)
	case "AF_UNSPEC":
		return endpoint{}, nil
	default:
		return endpoint{}, fmt.Errorf("family %s", fields["sa_family"])
	}
	if address, err = whole(address); err != nil {
		return endpoint{}, err
	}
	to := endpoint{}
	if to.address, err = netip.ParseAddr(address); err != nil {
		return endpoint{}, err
	}
	number, err := strconv.ParseUint(argument(port, 0), 10, 16)
	to.port = uint16(number)
	return to, err
}

// argument is one of a field that is printed as a call.
func argument(call string, index int) string {
	args, err := strace.Arguments(call)
	if err != nil || index >= len(args) {
		return ""
	}
	return args[index]
}

func fastOpen(c *strace.Call) bool {
	return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.Contains(arg, "MSG_FASTOPEN") })
}
