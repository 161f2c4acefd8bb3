package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A Destination is a socket to which connections and datagrams in a network namespace lead,
// whatever address they are for.
type Destination struct {
	Protocol string // tcp or udp
	Family   int    // 4 or 6
	Port     uint16 // 0: all that no other Destination is for
	Socket   syscall.RawConn
}

// A Steering is a program that is attached to a network namespace. It holds its sockets open.
type Steering struct {
	coll *ebpf.Collection
	link *link.NetNsLink
}

// Steer makes every address in a network namespace lead to one of our sockets, but for its
// loopback addresses and the Sensor's Own. It holds until Close, or until the namespace goes.
// The sockets must be of that namespace.
func (s *Sensor) Steer(netns *os.File, to []Destination) (_ *Steering, err error) {
	coll, err := ebpf.NewCollection(s.lookup.Copy())
	if err != nil {
		return nil, fmt.Errorf("load steering: %w", err)
	}
	t := &Steering{coll: coll}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, d := range to {
		if err := t.add(d); err != nil {
			return nil, fmt.Errorf("steer %s%d port %d: %w", d.Protocol, d.Family, d.Port, err)
		}
	}
	if t.link, err = link.AttachNetNs(int(netns.Fd()), coll.Programs[kernProgSteer]); err != nil {
		return nil, fmt.Errorf("attach steering: %w", err)
	}
	return t, nil
}

func (t *Steering) add(d Destination) error {
	protocol, err := protocolNumber(d.Protocol)
	if err != nil {
		return err
	}
	var failed error
	err = d.Socket.Control(func(fd uintptr) {
		failed = t.coll.Maps[kernMapSteered].Put(&kernSteerKey{Port: d.Port, Protocol: protocol, Family: uint8(d.Family)}, uint64(fd))
	})
	return errors.Join(err, failed)
}

// Close detaches the program, and no address leads anywhere any more.
func (t *Steering) Close() error {
	var err error
	if t.link != nil {
		err = t.link.Close()
	}
	t.coll.Close()
	return err
}

// setOwn tells the programs which addresses are the run's own, besides loopback ones.
func setOwn(spec *ebpf.CollectionSpec, own []netip.Addr) error {
	for _, a := range own {
		name, value := kernVarOwn6, any(nil)
		if raw := a.As16(); a.Is4() {
			name, value = kernVarOwn4, binary.NativeEndian.Uint32(raw[12:])
		} else {
			value = [4]uint32{
				binary.NativeEndian.Uint32(raw[0:]), binary.NativeEndian.Uint32(raw[4:]),
				binary.NativeEndian.Uint32(raw[8:]), binary.NativeEndian.Uint32(raw[12:]),
			}
		}
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set own address %v: %w", a, err)
		}
	}
	return nil
}

// separateLookup takes the program for network namespaces, which each has its own of, out of
// a collection.
func separateLookup(spec *ebpf.CollectionSpec) *ebpf.CollectionSpec {
	lookup := spec.Copy()
	for name := range lookup.Programs {
		if name != kernProgSteer {
			delete(lookup.Programs, name)
		}
	}
	for name := range lookup.Maps {
		if name != kernMapSteered && name != ".rodata" {
			delete(lookup.Maps, name)
		}
	}
	for name, v := range lookup.Variables {
		if v.SectionName != ".rodata" {
			delete(lookup.Variables, name)
		}
	}
	delete(spec.Programs, kernProgSteer)
	delete(spec.Maps, kernMapSteered)
	return lookup
}
