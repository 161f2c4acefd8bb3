package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// An attachment is one program and one place where it belongs.
type attachment struct {
	name  string // of the pin
	prog  *ebpf.Program
	spec  *ebpf.ProgramSpec
	event string    // of a tracepoint: group/event
	link  link.Link // nil until attached
}

func (a attachment) cgroup() bool {
	switch a.spec.Type {
	case ebpf.CGroupSKB, ebpf.CGroupSock, ebpf.CGroupSockAddr:
		return true
	}
	return false
}

// attachments lists what is to be attached, the programs that refuse first.
func attachments(spec *ebpf.CollectionSpec, coll *ebpf.Collection, permitted, traced map[string]bool) ([]attachment, error) {
	var list []attachment
	for name, prog := range coll.Programs {
		a := attachment{name: name, prog: prog, spec: spec.Programs[name], event: spec.Programs[name].AttachTo}
		switch {
		case a.spec.Type == ebpf.Syscall: // called, not attached
			continue
		case a.cgroup(), a.spec.Type == ebpf.Tracing && a.spec.AttachType == ebpf.AttachTraceRawTp:
			list = append(list, a)
		case a.spec.Type == ebpf.TracePoint:
			for _, call := range calls(name, a.event, permitted, traced) {
				a.event = exitGroup + exitPrefix + call
				if a.name = name; a.event != a.spec.AttachTo {
					a.name += "_" + call
				}
				list = append(list, a)
			}
		case name == kernProgSysExit:
			list = append(list, a)
		case a.spec.Type == ebpf.RawTracepoint: // called by it
			continue
		default:
			return nil, fmt.Errorf("program %s: no way to attach a %s", name, a.spec.Type)
		}
	}
	slices.SortFunc(list, func(a, b attachment) int {
		if a.cgroup() != b.cgroup() {
			if a.cgroup() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return list, nil
}

const nextSuffix = "_next" // of a pin that is about to replace another; a bpffs has no dots in names

// attach brings every program into force and pins its link in place of an earlier one.
func (s *Sensor) attach(events *tracefs) (err error) {
	id, err := CgroupID(s.opts.Cgroup)
	if err != nil {
		return err
	}
	for i := range s.links {
		a := &s.links[i]
		pin := filepath.Join(s.pinDir(), a.name)
		if a.cgroup() {
			if a.link, err = s.takeOver(pin, id, a.prog); err != nil {
				return fmt.Errorf("take over %s: %w", a.name, err)
			}
			if a.link != nil {
				continue
			}
		}
		if a.link, err = s.attachNew(a, events); err != nil {
			return fmt.Errorf("attach %s: %w", a.name, err)
		}
		// The new link works before the old one's last reference goes with its pin.
		// What is recorded twice in between goes to different rings.
		if err := os.Remove(pin + nextSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := a.link.Pin(pin + nextSuffix); err != nil {
			return fmt.Errorf("pin %s: %w", a.name, err)
		}
		if err := os.Rename(pin+nextSuffix, pin); err != nil {
			return fmt.Errorf("pin %s: %w", a.name, err)
		}
	}
	return s.removeStrangers()
}

// takeOver puts prog into the link pinned by an earlier process, if there is one and it
// still holds the cgroup. It returns nil when a new link is needed.
func (s *Sensor) takeOver(pin string, id uint64, prog *ebpf.Program) (link.Link, error) {
	old, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at, err := linkCgroup(old)
	if err != nil {
		return nil, errors.Join(err, old.Close())
	}
	if at != id {
		s.opts.Logger.Warn("pinned link is severed", "pin", pin, "cgroup", at, "want", id)
		return nil, old.Close()
	}
	if err := old.Update(prog); err != nil {
		return nil, errors.Join(err, old.Close())
	}
	s.opts.Logger.Info("pinned link taken over", "pin", pin)
	return old, nil
}

func (s *Sensor) attachNew(a *attachment, events *tracefs) (link.Link, error) {
	switch {
	case a.cgroup():
		return link.AttachCgroup(link.CgroupOptions{Path: s.opts.Cgroup, Attach: a.spec.AttachType, Program: a.prog})
	case a.spec.Type == ebpf.RawTracepoint:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: a.event, Program: a.prog})
	case a.spec.Type == ebpf.Tracing:
		return link.AttachTracing(link.TracingOptions{Program: a.prog})
	default:
		return events.attach(a.event, a.prog)
	}
}

// removeStrangers removes pins that no program of this version has.
func (s *Sensor) removeStrangers() error {
	entries, err := os.ReadDir(s.pinDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.ContainsFunc(s.links, func(a attachment) bool { return a.name == e.Name() }) {
			continue
		}
		s.opts.Logger.Info("pin of another version removed", "pin", e.Name())
		if err := os.Remove(filepath.Join(s.pinDir(), e.Name())); err != nil {
			return fmt.Errorf("stale pin: %w", err)
		}
	}
	return nil
}
