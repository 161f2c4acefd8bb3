package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// errRecord is what every record that can't be decoded is.
var errRecord = errors.New("broken record")

// fixed takes the C structure T from the front of a record. T has no pointers and every
// bit pattern is one of its values, so that nothing in the bytes can do harm.
func fixed[T any](raw []byte) (v T, rest []byte, err error) {
	size := int(unsafe.Sizeof(v))
	if len(raw) < size {
		return v, nil, fmt.Errorf("%w: %d bytes of a %d-byte structure", errRecord, len(raw), size)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), size), raw)
	return v, raw[size:], nil
}

// exact is fixed for a record that is nothing but T.
func exact[T any](raw []byte) (v T, err error) {
	v, rest, err := fixed[T](raw)
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("%w: %d bytes behind a %d-byte structure", errRecord, len(rest), unsafe.Sizeof(v))
	}
	return v, err
}

// A decoder makes events of one run's ring records.
type decoder struct {
	run  string
	boot time.Time // when the boot clock stood at zero

	// Of the last record: a process seldom acts but once.
	who     kernProcess
	process *audit.Process
}

// acted returns the description of who acted. Events share it.
func (d *decoder) acted(who kernProcess) *audit.Process {
	if d.process == nil || who != d.who {
		d.who, d.process = who, who.process()
	}
	return d.process
}

func (who *kernProcess) process() *audit.Process {
	return &audit.Process{
		PID:    who.Pid,
		PPID:   who.Ppid,
		HostID: who.HostPid,
		Thread: who.Tid,
		Start:  who.Start,
		Comm:   comm(who.Comm),
	}
}

// decode returns the event of a record, with whose bytes it has nothing to do.
func (d *decoder) decode(raw []byte) (audit.Event, error) {
	repeat, raw, err := decodeRepeat(raw, d.boot)
	if err != nil {
		return audit.Event{}, err
	}
	head, _, err := fixed[kernEvent](raw)
	if err != nil {
		return audit.Event{}, err
	}
	if int64(head.Size) != int64(len(raw)) {
		return audit.Event{}, fmt.Errorf("%w: %d bytes, said to be %d", errRecord, len(raw), head.Size)
	}
	event := audit.Event{
		Run:     d.run,
		Seq:     head.Seq,
		Time:    d.boot.Add(time.Duration(head.Time)),
		Repeat:  repeat,
		Process: d.acted(head.Who),
	}
	switch head.Kind {
	case kernEventKindEVENT_OPEN:
		event.Kind = audit.KindOpen
		event.Open, err = decodeOpen(raw)
	case kernEventKindEVENT_EXEC:
		event.Kind = audit.KindExec
		event.Exec, err = decodeExec(raw)
	case kernEventKindEVENT_FORK:
		event.Kind = audit.KindFork
		event.Fork, err = decodeFork(raw)
	case kernEventKindEVENT_EXIT:
		event.Kind = audit.KindExit
		event.Exit, err = decodeExit(raw)
	case kernEventKindEVENT_CONNECT:
		event.Kind = audit.KindConnect
		event.Net, err = decodeNet(raw)
	case kernEventKindEVENT_SEND, kernEventKindEVENT_DROP:
		event.Kind = audit.KindSend
		event.Net, err = decodeNet(raw)
	case kernEventKindEVENT_BIND:
		event.Kind = audit.KindBind
		event.Net, err = decodeNet(raw)
	case kernEventKindEVENT_LISTEN:
		event.Kind = audit.KindListen
		event.Net, err = decodeNet(raw)
	case kernEventKindEVENT_OOM:
		event.Kind = audit.KindOOM
	case kernEventKindEVENT_CHANGE:
		event.Kind = audit.KindChange
		event.Change, err = decodeChange(raw)
	case kernEventKindEVENT_REFUSED:
		event.Kind = audit.KindRefused
		event.Refused, err = decodeRefused(raw)
	case kernEventKindEVENT_RACED:
		event.Kind = audit.KindRaced
		event.Raced, err = decodeRaced(raw)
	default:
		err = fmt.Errorf("%w: kind %d", errRecord, head.Kind)
	}
	if err != nil {
		return audit.Event{}, err
	}
	return event, nil
}

// decodeRepeat takes off what precedes an event that stands for repeats.
func decodeRepeat(raw []byte, boot time.Time) (*audit.Repeat, []byte, error) {
	if len(raw) < 8 || binary.NativeEndian.Uint64(raw) != 0 {
		return nil, raw, nil
	}
	v, rest, err := fixed[kernRepeat](raw)
	if err != nil {
		return nil, nil, err
	}
	if v.Of == 0 || v.Count == 0 {
		return nil, nil, fmt.Errorf("%w: %d repeats of event %d", errRecord, v.Count, v.Of)
	}
	return &audit.Repeat{Of: v.Of, Count: v.Count, First: boot.Add(time.Duration(v.First))}, rest, nil
}

func comm(raw [16]uint8) audit.Text {
	name, _, _ := bytes.Cut(raw[:], []byte{0})
	return audit.Text(name)
}

// parts hands out the variable parts of a record, one after another.
type parts struct {
	rest []byte
	err  error
}

func (p *parts) take(n uint32) []byte {
	if uint64(n) > uint64(len(p.rest)) {
		if p.err == nil {
			p.err = fmt.Errorf("%w: part of %d bytes in %d", errRecord, n, len(p.rest))
		}
		return nil
	}
	part := p.rest[:n]
	p.rest = p.rest[n:]
	return part
}

// path takes a path. The flags say what its marks do.
func (p *parts) path(part kernPathPart) (path audit.Text, flags pathFlags) {
	raw := p.take(part.Len)
	if p.err != nil {
		return "", flags
	}
	path, flags, p.err = filePath(raw, kernPathMark(part.Marks))
	return path, flags
}

// end is for after the last part.
func (p *parts) end() error {
	if p.err == nil && len(p.rest) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last part", errRecord, len(p.rest))
	}
	return p.err
}

func decodeOpen(raw []byte) (*audit.Open, error) {
	v, rest, err := fixed[kernOpenEvent](raw)
	if err != nil {
		return nil, err
	}
	p := parts{rest: rest}
	path, flags := p.path(v.Path)
	dir, base := p.path(v.Dir)
	if err := p.end(); err != nil {
		return nil, err
	}
	open := &audit.Open{
		Path:       path,
		Dir:        dir,
		Access:     access(v.Flags),
		Flags:      openFlags(v.Flags),
		Errno:      errno(v.Result),
		Unresolved: flags.unresolved,
		Truncated:  flags.truncated,
		Deleted:    flags.deleted,
		Raced:      flags.raced || base.raced,
	}
	if v.Marks&uint32(kernOpenMarkOPEN_MEMFD) != 0 {
		open.Flags = []string{"memfd"}
	}
	return open, nil
}

func decodeExec(raw []byte) (*audit.Exec, error) {
	v, rest, err := fixed[kernExecEvent](raw)
	if err != nil {
		return nil, err
	}
	p := parts{rest: rest}
	file, flags := p.path(v.File)
	dir, base := p.path(v.Cwd)
	script, _ := p.path(v.Script)
	argv, env := p.take(v.ArgvLen), p.take(v.EnvLen)
	if err := p.end(); err != nil {
		return nil, err
	}
	exec := &audit.Exec{
		File:      file,
		Script:    script,
		Argv:      arguments(argv),
		Env:       names(env, v.EnvSize > v.EnvLen),
		EnvCut:    v.EnvSize > v.EnvLen,
		Dir:       dir,
		UID:       v.Uid,
		GID:       v.Gid,
		Errno:     errno(v.Result),
		Truncated: flags.truncated,
		Deleted:   flags.deleted,
		Raced:     flags.raced || base.raced,
	}
	if v.ArgvSize > v.ArgvLen {
		exec.ArgvBytes = v.ArgvSize
	}
	return exec, nil
}

// arguments splits a command line into its strings, each of which ends with a NUL; the
// last may have lost its own where the line was cut.
func arguments(raw []byte) []audit.Text {
	if len(raw) == 0 {
		return nil
	}
	line := strings.TrimSuffix(string(raw), "\x00")
	argv := make([]audit.Text, 0, strings.Count(line, "\x00")+1)
	for arg := range strings.SplitSeq(line, "\x00") {
		argv = append(argv, audit.Text(arg))
	}
	return argv
}

// names returns the names in an environment. A string without '=' names nothing; of one that
// is cut there may be only a part.
func names(raw []byte, cut bool) []audit.Text {
	var names []audit.Text
	for len(raw) > 0 {
		var s []byte
		var whole bool
		s, raw, whole = bytes.Cut(raw, []byte{0})
		name, _, assigned := bytes.Cut(s, []byte{'='})
		if assigned || (!whole && cut && len(s) > 0) {
			names = append(names, audit.Text(name))
		}
	}
	return names
}

func decodeFork(raw []byte) (*audit.Fork, error) {
	v, err := exact[kernForkEvent](raw)
	if err != nil {
		return nil, err
	}
	return &audit.Fork{Child: v.Child, ChildHost: v.ChildHost, Start: v.Start}, nil
}

func decodeExit(raw []byte) (*audit.Exit, error) {
	v, err := exact[kernExitEvent](raw)
	if err != nil {
		return nil, err
	}
	const signalMask, coreBit = 0x7f, 0x80
	exit := &audit.Exit{}
	if signal := v.Status & signalMask; signal != 0 {
		exit.Signal = signalName(signal)
		exit.Core = v.Status&coreBit != 0
	} else {
		exit.Code = int(v.Status >> 8 & 0xff)
	}
	return exit, nil
}

func decodeRaced(raw []byte) (*audit.Raced, error) {
	v, err := exact[kernRacedEvent](raw)
	if err != nil {
		return nil, err
	}
	return &audit.Raced{Of: v.Of}, nil
}

func decodeNet(raw []byte) (*audit.Network, error) {
	v, rest, err := fixed[kernNetEvent](raw)
	if err != nil {
		return nil, err
	}
	p := parts{rest: rest}
	name := p.take(v.NameLen)
	path, flags := p.path(v.Path)
	if err := p.end(); err != nil {
		return nil, err
	}
	n := &audit.Network{
		Raced:    flags.raced,
		Protocol: protocolName(v.Protocol),
		Port:     v.Port,
		Mapped:   v.Mapped != 0,
		Errno:    errno(v.Result),
	}
	switch v.Family {
	case 4:
		n.Address = netip.AddrFrom4([4]byte(v.Address[:4]))
	case 6:
		n.Address = netip.AddrFrom16(v.Address)
	case 1:
		n.Protocol = "unix"
		if n.Name, n.Dir = socketName(name), path; n.Name == "" {
			n.Name, n.Dir = path, ""
		}
	case 0: // a packet whose header could not be read, or a socket of another family
		n.Address = netip.Addr{}
	default:
		return nil, fmt.Errorf("%w: address family %d", errRecord, v.Family)
	}
	switch kind := v.Head.Kind; {
	case kind == kernEventKindEVENT_BIND || kind == kernEventKindEVENT_LISTEN:
		return n, nil
	case v.Allowed != 0:
		n.Decision = audit.Allowed
	default:
		n.Decision = audit.Blocked
	}
	rule, known := ruleNames[kernNetRule(v.Rule)]
	if !known {
		return nil, fmt.Errorf("%w: rule %d", errRecord, v.Rule)
	}
	n.Rule = rule
	return n, nil
}

// socketName is a UNIX socket's: a path ends at its first NUL, an abstract name has them
// anywhere.
func socketName(raw []byte) audit.Text {
	if len(raw) > 0 && raw[0] != 0 {
		raw, _, _ = bytes.Cut(raw, []byte{0})
	}
	return audit.Text(raw)
}

func protocolName(number uint16) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	}
	return strconv.Itoa(int(number))
}
