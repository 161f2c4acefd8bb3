package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proctor/audit"
)

// A Grant lets a run reach a range of addresses. Where ranges lie in each other, an address
// has the ports of all that it is in.
type Grant struct {
	// Prefix is masked; an IPv4-mapped one is refused: it is written as IPv4.
	Prefix netip.Prefix
	// Named addresses stand for names: to connect a datagram socket to one means nothing by
	// itself, and is neither refused nor recorded. What is sent is judged.
	Named bool
	Ports []Port
}

// A Port of a Grant.
type Port struct {
	Number   uint16
	Protocol string // tcp or udp
	Rule     Rule
}

// A Rule is why an address may be reached, or not, for the record.
type Rule uint8

const (
	RuleNoGrant  = Rule(kernNetRuleRULE_NO_GRANT)
	RuleGranted  = Rule(kernNetRuleRULE_GRANTED)
	RuleResolver = Rule(kernNetRuleRULE_RESOLVER)
	RuleProxy    = Rule(kernNetRuleRULE_PROXY)
)

// String is the rule as it stands in a record.
func (r Rule) String() string { return ruleNames[kernNetRule(r)] }

var ruleNames = map[kernNetRule]string{
	kernNetRuleRULE_LOOPBACK: "loopback",
	kernNetRuleRULE_NO_GRANT: "no network granted",
	kernNetRuleRULE_BACKSTOP: "packet dropped on its way out",
	kernNetRuleRULE_GRANTED:  "granted",
	kernNetRuleRULE_RESOLVER: "Proctor's resolver",
	kernNetRuleRULE_PROXY:    "Proctor's proxy",
}

// grantEntries are what the programs look up for a run.
func grantEntries(run uint64, grants []Grant) (map[kernGrantKey]kernGrant, error) {
	entries := make(map[kernGrantKey]kernGrant, len(grants))
	for _, g := range grants {
		if !g.Prefix.IsValid() || g.Prefix != g.Prefix.Masked() || g.Prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("grant %v: write it masked, and IPv4 as IPv4", g.Prefix)
		}
		var entry kernGrant
		for _, wider := range grants {
			if wider.Prefix.Bits() > g.Prefix.Bits() || !wider.Prefix.Contains(g.Prefix.Addr()) {
				continue
			}
			if err := entry.add(wider); err != nil {
				return nil, fmt.Errorf("grant %v: %w", g.Prefix, err)
			}
		}
		entries[grantKey(run, g.Prefix)] = entry
	}
	return entries, nil
}

func (e *kernGrant) add(g Grant) error {
	if g.Named {
		e.Named = 1
	}
	for _, p := range g.Ports {
		protocol, err := protocolNumber(p.Protocol)
		if err != nil {
			return err
		}
		port := e.Ports[0]
		port.Port, port.Protocol, port.Rule = p.Number, protocol, uint8(p.Rule)
		if slices.Contains(e.Ports[:e.Count], port) {
			continue
		}
		if int(e.Count) == len(e.Ports) {
			return fmt.Errorf("more than %d ports", len(e.Ports))
		}
		e.Ports[e.Count] = port
		e.Count++
	}
	return nil
}

func protocolNumber(name string) (uint8, error) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, nil
	case "udp":
		return unix.IPPROTO_UDP, nil
	}
	return 0, fmt.Errorf("protocol %q is neither tcp nor udp", name)
}

func grantKey(run uint64, prefix netip.Prefix) kernGrantKey {
	const runBits = 64
	bits := prefix.Bits()
	if prefix.Addr().Is4() {
		bits += 128 - 32
	}
	key := kernGrantKey{Prefix: uint32(runBits + bits), Run: [2]uint32{uint32(run), uint32(run >> 32)}}
	key.Address = words(prefix.Addr())
	return key
}

// words is an address as the programs have it; that of no address is 0.
func words(a netip.Addr) (out [4]uint32) {
	raw := a.As16()
	for i := range out {
		out[i] = binary.NativeEndian.Uint32(raw[4*i:])
	}
	return out
}

// grant enters what a run may reach. It is done before the run is known to the programs. A run
// that is granted nothing has no senders.
func (w *Watch) grant(grants []Grant, senders *ebpf.MapSpec) error {
	entries, err := grantEntries(w.id, grants)
	if err != nil || len(entries) == 0 {
		return err
	}
	if w.own, err = ebpf.NewMap(senders); err != nil {
		return fmt.Errorf("make senders: %w", err)
	}
	if err := w.senders.Update(w.id, w.own, ebpf.UpdateNoExist); err != nil {
		return errors.Join(fmt.Errorf("enter senders: %w", err), w.revoke())
	}
	for key, entry := range entries {
		if err := w.grants.Update(&key, &entry, ebpf.UpdateNoExist); err != nil {
			return errors.Join(fmt.Errorf("enter grant: %w", err), w.revoke())
		}
		w.granted = append(w.granted, key)
	}
	return nil
}

// revoke takes away everything that was granted.
func (w *Watch) revoke() error {
	var errs []error
	for _, key := range w.granted {
		if err := w.grants.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("take back grant: %w", err))
		}
	}
	w.granted = nil
	if w.own != nil {
		if err := w.senders.Delete(w.id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("take back senders: %w", err))
		}
		errs = append(errs, w.own.Close())
	}
	return errors.Join(errs...)
}

// Sender returns who in the run last sent a datagram, or began a connection, from there to
// there, which it is granted. It is nil when nobody is known to have.
func (w *Watch) Sender(protocol string, from, to netip.AddrPort) (*audit.Process, error) {
	number, err := protocolNumber(protocol)
	if err != nil {
		return nil, err
	}
	if w.own == nil {
		return nil, nil
	}
	var who kernProcess
	key := kernSenderKey{
		Protocol: number,
		From:     words(from.Addr()), FromPort: from.Port(), To: words(to.Addr()), ToPort: to.Port(),
	}
	err = w.own.Lookup(&key, &who)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sender from %s to %s by %s: %w", from, to, protocol, err)
	}
	return who.process(), nil
}
