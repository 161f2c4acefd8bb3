package bpf

import (
	"bytes"
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

// decode makes an event of a ring record. boot is the wall time at which the boot clock
// stood at zero. The event shares no memory with raw.
func decode(raw []byte, run string, boot time.Time) (audit.Event, error) {
	head, _, err := fixed[kernEvent](raw)
	if err != nil {
		return audit.Event{}, err
	}
	if int64(head.Size) != int64(len(raw)) {
		return audit.Event{}, fmt.Errorf("%w: %d bytes, said to be %d", errRecord, len(raw), head.Size)
	}
	event := audit.Event{
		Run:  run,
		Seq:  head.Seq,
		Time: boot.Add(time.Duration(head.Time)),
		Process: &audit.Process{
			PID:    head.Who.Pid,
			PPID:   head.Who.Ppid,
			HostID: head.Who.HostPid,
			Thread: head.Who.Tid,
			Comm:   comm(head.Who.Comm),
		},
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
	case kernEventKindEVENT_OOM:
		event.Kind = audit.KindOOM
	default:
		err = fmt.Errorf("%w: kind %d", errRecord, head.Kind)
	}
	if err != nil {
		return audit.Event{}, err
	}
	return event, nil
}

func comm(raw [16]uint8) audit.Text {
	name, _, _ := bytes.Cut(raw[:], []byte{0})
	return audit.Text(name)
}

func decodeOpen(raw []byte) (*audit.Open, error) {
	v, rest, err := fixed[kernOpenEvent](raw)
	if err != nil {
		return nil, err
	}
	if uint64(len(rest)) != uint64(v.PathLen) {
		return nil, fmt.Errorf("%w: path of %d bytes in %d", errRecord, v.PathLen, len(rest))
	}
	marks := kernPathMark(v.Marks)
	path, deleted, err := filePath(rest, marks)
	if err != nil {
		return nil, err
	}
	open := &audit.Open{
		Path:       path,
		Access:     access(v.Flags),
		Flags:      openFlags(v.Flags),
		Unresolved: marks&kernPathMarkPATH_UNRESOLVED != 0,
		Truncated:  marks&kernPathMarkPATH_TRUNCATED != 0,
		Deleted:    deleted,
	}
	if v.Result < 0 {
		open.Errno = errnoName(-int64(v.Result))
	}
	return open, nil
}

func decodeExec(raw []byte) (*audit.Exec, error) {
	v, rest, err := fixed[kernExecEvent](raw)
	if err != nil {
		return nil, err
	}
	if uint64(len(rest)) != uint64(v.FileLen)+uint64(v.ArgvLen) {
		return nil, fmt.Errorf("%w: file of %d and arguments of %d bytes in %d", errRecord, v.FileLen, v.ArgvLen, len(rest))
	}
	marks := kernPathMark(v.Marks)
	file, deleted, err := filePath(rest[:v.FileLen], marks)
	if err != nil {
		return nil, err
	}
	return &audit.Exec{
		File:          file,
		Argv:          arguments(rest[v.FileLen:]),
		ArgvTruncated: v.ArgvSize > v.ArgvLen,
		Truncated:     marks&kernPathMarkPATH_TRUNCATED != 0,
		Deleted:       deleted,
	}, nil
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

func decodeFork(raw []byte) (*audit.Fork, error) {
	v, rest, err := fixed[kernForkEvent](raw)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind a fork", errRecord, len(rest))
	}
	return &audit.Fork{Child: v.Child, ChildHost: v.ChildHost}, nil
}

func decodeExit(raw []byte) (*audit.Exit, error) {
	v, rest, err := fixed[kernExitEvent](raw)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind an exit", errRecord, len(rest))
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

func decodeNet(raw []byte) (*audit.Network, error) {
	v, rest, err := fixed[kernNetEvent](raw)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind a destination", errRecord, len(rest))
	}
	n := &audit.Network{
		Protocol: protocolName(v.Protocol),
		Port:     v.Port,
		Decision: audit.Blocked,
		Mapped:   v.Mapped != 0,
	}
	switch v.Family {
	case 4:
		n.Address = netip.AddrFrom4([4]byte(v.Address[:4]))
	case 6:
		n.Address = netip.AddrFrom16(v.Address)
	case 0: // a packet whose header could not be read
		n.Address = netip.Addr{}
	default:
		return nil, fmt.Errorf("%w: address family %d", errRecord, v.Family)
	}
	if v.Allowed != 0 {
		n.Decision = audit.Allowed
	}
	switch kernNetRule(v.Rule) {
	case kernNetRuleRULE_LOOPBACK:
		n.Rule = "loopback"
	case kernNetRuleRULE_NO_GRANT:
		n.Rule = "no network granted"
	case kernNetRuleRULE_BACKSTOP:
		n.Rule = "packet dropped on its way out"
	default:
		return nil, fmt.Errorf("%w: rule %d", errRecord, v.Rule)
	}
	return n, nil
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
