package bpf

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"proctor/audit"
)

var someBoot = time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)

func someDecoder() *decoder { return &decoder{run: "r", boot: someBoot} }

// record lays out a structure of the C side and what follows it, as a program does.
func record[T any](v T, rest ...string) []byte {
	raw := slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)))
	for _, s := range rest {
		raw = append(raw, s...)
	}
	head := (*kernEvent)(unsafe.Pointer(&raw[0]))
	head.Size = uint32(len(raw))
	return raw
}

func headOf(kind kernEventKind) kernEvent {
	return kernEvent{Seq: 7, Time: uint64(1500 * time.Millisecond), Kind: kind,
		Who: kernProcess{Pid: 2, Tid: 3, Ppid: 1, HostPid: 4711, Start: 99, Comm: [16]uint8{'p', 'y'}}}
}

func open(result int32, flags, marks uint32, path string) []byte {
	return record(kernOpenEvent{Head: headOf(kernEventKindEVENT_OPEN), Result: result, Flags: flags, Path: part(marks, path)}, path)
}

func part(marks uint32, path string) kernPathPart {
	return kernPathPart{Marks: marks, Len: uint32(len(path))}
}

func exec(size int, file, argv string) []byte {
	return record(kernExecEvent{Head: headOf(kernEventKindEVENT_EXEC), File: part(0, file),
		ArgvLen: uint32(len(argv)), ArgvSize: uint32(size)}, file, argv)
}

func exit(status uint32) []byte {
	return record(kernExitEvent{Head: headOf(kernEventKindEVENT_EXIT), Status: status})
}

func network(e kernNetEvent) []byte {
	if e.Head.Kind == 0 {
		e.Head = headOf(kernEventKindEVENT_CONNECT)
	}
	return record(e)
}

func pseudo(magic, inode uint64, name string) string {
	v := kernPseudo{Inode: inode, Magic: magic}
	return string(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))) + name
}

func TestDecode(t *testing.T) {
	const (
		unresolved = uint32(kernPathMarkPATH_UNRESOLVED)
		truncated  = uint32(kernPathMarkPATH_TRUNCATED)
		gone       = uint32(kernPathMarkPATH_DELETED)
		nameless   = uint32(kernPathMarkPATH_PSEUDO)
	)
	tests := []struct {
		name string
		raw  []byte
		want audit.Event // but for what headOf says
	}{
		{"open", open(0, unix.O_RDONLY, 0, "/a"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "/a", Access: audit.AccessRead}}},
		{"open, all flags", open(0, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_TRUNC|unix.O_APPEND|unix.O_CLOEXEC, 0, "/a"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "/a", Access: audit.AccessBoth,
				Flags: []string{"create", "exclusive", "truncate", "append"}}}},
		{"open, handle", open(0, unix.O_PATH|unix.O_DIRECTORY, 0, "/a"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "/a", Access: audit.AccessPath, Flags: []string{"directory"}}}},
		{"open, temporary", open(0, unix.O_TMPFILE|unix.O_WRONLY, gone, "/t/#1"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "/t/#1", Access: audit.AccessWrite,
				Flags: []string{"tmpfile"}, Deleted: true}}},
		{"open, failed", open(-int32(unix.ENOENT), unix.O_WRONLY, unresolved, "a\xff"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "a\xff", Access: audit.AccessWrite, Errno: "ENOENT", Unresolved: true}}},
		{"open, interrupted", open(-512, unix.O_RDONLY, unresolved, "fifo"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "fifo", Access: audit.AccessRead, Errno: "ERESTARTSYS", Unresolved: true}}},
		{"open, unknown errno", open(-4000, unix.O_RDONLY, unresolved, "x"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "x", Access: audit.AccessRead, Errno: "errno 4000", Unresolved: true}}},
		{"open, front missing", open(0, unix.O_RDONLY, truncated, "/b/c"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "b/c", Access: audit.AccessRead, Truncated: true}}},
		{"open, end missing", open(-int32(unix.ENAMETOOLONG), unix.O_RDONLY, unresolved|truncated, "/b/c"),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "/b/c", Access: audit.AccessRead,
				Errno: "ENAMETOOLONG", Unresolved: true, Truncated: true}}},
		{"open, no path", open(-int32(unix.EFAULT), unix.O_RDONLY, unresolved|truncated, ""),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Access: audit.AccessRead, Errno: "EFAULT", Unresolved: true, Truncated: true}}},
		{"pipe", open(0, unix.O_WRONLY, nameless, pseudo(unix.PIPEFS_MAGIC, 42, "")),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "pipe:[42]", Access: audit.AccessWrite}}},
		{"socket", open(0, unix.O_WRONLY, nameless, pseudo(unix.SOCKFS_MAGIC, 42, "")),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "socket:[42]", Access: audit.AccessWrite}}},
		{"namespace", open(0, unix.O_RDONLY, nameless, pseudo(unix.NSFS_MAGIC, 4026531840, "net")),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "net:[4026531840]", Access: audit.AccessRead}}},
		{"anonymous inode", open(0, unix.O_RDONLY, nameless, pseudo(unix.ANON_INODE_FS_MAGIC, 1, "[eventfd]")),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "anon_inode:[eventfd]", Access: audit.AccessRead}}},
		{"memfd", open(0, unix.O_RDWR, nameless, pseudo(unix.TMPFS_MAGIC, 1, "memfd:x")),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "/memfd:x", Access: audit.AccessBoth, Deleted: true}}},
		{"other without a place", open(0, unix.O_RDWR, nameless, pseudo(0x1234, 1, "odd")),
			audit.Event{Kind: audit.KindOpen, Open: &audit.Open{Path: "odd", Access: audit.AccessBoth}}},

		{"exec", exec(8, "/bin/sh", "sh\x00-c\x00\x00\x00"[:7]+"\x00"),
			audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{File: "/bin/sh", Argv: []audit.Text{"sh", "-c", "", ""}}}},
		{"exec, no arguments", exec(0, "/bin/sh", ""),
			audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{File: "/bin/sh"}}},
		{"exec, one empty argument", exec(1, "/bin/sh", "\x00"),
			audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{File: "/bin/sh", Argv: []audit.Text{""}}}},
		{"exec, cut", exec(40000, "/bin/sh", "sh\x00lon"),
			audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{File: "/bin/sh", Argv: []audit.Text{"sh", "lon"}, ArgvBytes: 40000}}},

		{"fork", record(kernForkEvent{Head: headOf(kernEventKindEVENT_FORK), Child: 5, ChildHost: 4712}),
			audit.Event{Kind: audit.KindFork, Fork: &audit.Fork{Child: 5, ChildHost: 4712}}},
		{"exit", exit(0), audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{}}},
		{"exit, code", exit(200 << 8), audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Code: 200}}},
		{"exit, signal", exit(9), audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Signal: "SIGKILL"}}},
		{"exit, core", exit(11 | 0x80), audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Signal: "SIGSEGV", Core: true}}},
		{"exit, realtime signal", exit(36), audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Signal: "SIGRTMIN+2"}}},
		{"exit, glibc's own signal", exit(33), audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Signal: "signal 33"}}},
		{"oom", record(headOf(kernEventKindEVENT_OOM)), audit.Event{Kind: audit.KindOOM}},

		{"connect", network(kernNetEvent{Address: [16]uint8{198, 51, 100, 7, 9, 9}, Port: 443, Protocol: 6, Family: 4, Rule: 2}),
			audit.Event{Kind: audit.KindConnect, Net: &audit.Network{Protocol: "tcp", Address: netip.MustParseAddr("198.51.100.7"),
				Port: 443, Decision: audit.Blocked, Rule: "no network granted"}}},
		{"connect, IPv6", network(kernNetEvent{Address: netip.MustParseAddr("2001:db8::5").As16(), Protocol: 17, Family: 6, Rule: 2}),
			audit.Event{Kind: audit.KindConnect, Net: &audit.Network{Protocol: "udp", Address: netip.MustParseAddr("2001:db8::5"),
				Decision: audit.Blocked, Rule: "no network granted"}}},
		{"connect, loopback", network(kernNetEvent{Address: [16]uint8{127, 0, 0, 1}, Protocol: 262, Family: 4, Rule: 1, Allowed: 1, Mapped: 1}),
			audit.Event{Kind: audit.KindConnect, Net: &audit.Network{Protocol: "262", Address: netip.MustParseAddr("127.0.0.1"),
				Decision: audit.Allowed, Rule: "loopback", Mapped: true}}},
		{"send", network(kernNetEvent{Head: headOf(kernEventKindEVENT_SEND), Address: [16]uint8{192, 0, 2, 1}, Protocol: 17, Family: 4, Rule: 2}),
			audit.Event{Kind: audit.KindSend, Net: &audit.Network{Protocol: "udp", Address: netip.MustParseAddr("192.0.2.1"),
				Decision: audit.Blocked, Rule: "no network granted"}}},
		{"dropped", network(kernNetEvent{Head: headOf(kernEventKindEVENT_DROP), Rule: 3}),
			audit.Event{Kind: audit.KindSend, Net: &audit.Network{Protocol: "0", Decision: audit.Blocked, Rule: "packet dropped on its way out"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			want.Run, want.Seq, want.Time = "r", 7, someBoot.Add(1500*time.Millisecond)
			want.Process = &audit.Process{PID: 2, PPID: 1, HostID: 4711, Thread: 3, Start: 99, Comm: "py"}
			got, err := someDecoder().decode(tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDecodeRefusesBrokenRecords(t *testing.T) {
	whole := open(0, 0, 0, "/a/b")
	wrongSize := slices.Clone(whole)
	(*kernEvent)(unsafe.Pointer(&wrongSize[0])).Size++
	longPath := slices.Clone(whole)
	(*kernOpenEvent)(unsafe.Pointer(&longPath[0])).Path.Len = 1 << 31
	hugeExec := exec(1, "/f", "a\x00")
	(*kernExecEvent)(unsafe.Pointer(&hugeExec[0])).File.Len = 0xffffffff
	tests := map[string][]byte{
		"nothing":          nil,
		"zeros":            make([]byte, 256),
		"part of a header": whole[:20],
		"cut":              whole[:len(whole)-1],
		"other size":       wrongSize,
		"path too long":    longPath,
		"lengths overflow": hugeExec,
		"unknown kind":     record(headOf(kernEventKindEVENT_KINDS)),
		"bare open":        record(headOf(kernEventKindEVENT_OPEN)),
		"long fork":        record(kernForkEvent{Head: headOf(kernEventKindEVENT_FORK)}, "x"),
		"long exit":        record(kernExitEvent{Head: headOf(kernEventKindEVENT_EXIT)}, "x"),
		"long destination": record(kernNetEvent{Head: headOf(kernEventKindEVENT_CONNECT), Rule: 1}, "x"),
		"no rule":          network(kernNetEvent{Family: 4}),
		"unknown rule":     network(kernNetEvent{Family: 4, Rule: 99}),
		"unknown family":   network(kernNetEvent{Family: 5, Rule: 1}),
		"short pseudo":     open(0, 0, uint32(kernPathMarkPATH_PSEUDO), "short"),
	}
	for name, raw := range tests {
		if e, err := someDecoder().decode(raw); !errors.Is(err, errRecord) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// The event must not point into the ring, where the bytes are soon another's.
func TestDecodeCopies(t *testing.T) {
	raw := open(0, 0, 0, "/a/b")
	e, err := someDecoder().decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if e.Open.Path != "/a/b" || e.Process.Comm != "py" {
		t.Errorf("event is %+v %+v", *e.Open, *e.Process)
	}
}

func FuzzDecode(f *testing.F) {
	for _, raw := range [][]byte{
		open(0, 0, 0, "/a"), open(0, 0, uint32(kernPathMarkPATH_PSEUDO), pseudo(unix.NSFS_MAGIC, 1, "net")),
		exec(6, "/bin/sh", "sh\x00-c\x00"), exit(9), network(kernNetEvent{Family: 6, Rule: 2}),
		record(kernForkEvent{Head: headOf(kernEventKindEVENT_FORK)}), record(headOf(kernEventKindEVENT_OOM)), {},
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := someDecoder().decode(raw)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Errorf("error of an unknown kind: %v", err)
			}
			return
		}
		if e.Kind == "" || e.Process == nil {
			t.Errorf("event without a kind or a process: %+v", e)
		}
	})
}

func TestOrder(t *testing.T) {
	seqs := func(events []audit.Event) (out []uint64) {
		for _, e := range events {
			out = append(out, e.Seq)
		}
		return out
	}
	tests := []struct {
		name  string
		looks [][]uint64 // what has come at each look
		want  [][]uint64
		rest  []uint64
	}{
		{"in order", [][]uint64{{1, 2}, {3}}, [][]uint64{{1, 2}, {3}}, nil},
		{"other way round", [][]uint64{{2, 1, 3}}, [][]uint64{{1, 2, 3}}, nil},
		{"across looks", [][]uint64{{1, 3}, {2, 4}}, [][]uint64{{1}, {2, 3, 4}}, nil},
		{"lost", [][]uint64{{1, 3}, {4}, {5}}, [][]uint64{{1}, {3, 4}, {5}}, nil},
		{"many lost", [][]uint64{{2, 4, 6}, {8}, {}}, [][]uint64{nil, {2, 4, 6}, {8}}, nil},
		{"very late", [][]uint64{{1, 3}, {4}, {2, 5}}, [][]uint64{{1}, {3, 4}, {2, 5}}, nil},
		{"left over", [][]uint64{{1, 3, 5}}, [][]uint64{{1}}, []uint64{3, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o order
			for i, look := range tt.looks {
				for _, seq := range look {
					o.add(audit.Event{Seq: seq})
				}
				if got := seqs(o.ready()); !slices.Equal(got, tt.want[i]) {
					t.Errorf("look %d gives %v, want %v", i, got, tt.want[i])
				}
			}
			if got := seqs(o.all()); !slices.Equal(got, tt.rest) {
				t.Errorf("rest is %v, want %v", got, tt.rest)
			}
		})
	}
}

func TestRingSize(t *testing.T) {
	page := uint32(os.Getpagesize())
	for bytes, want := range map[int]uint32{0: defaultRing, 1: page, int(page): page, int(page) + 1: 2 * page, 1 << 30: 1 << 30} {
		if got, err := ringSize(bytes); err != nil || got != want {
			t.Errorf("ringSize(%d) is %d, %v, want %d", bytes, got, err, want)
		}
	}
	for _, bytes := range []int{-1, 1<<30 + 1} {
		if got, err := ringSize(bytes); err == nil {
			t.Errorf("ringSize(%d) is %d", bytes, got)
		}
	}
}

func TestCounterNames(t *testing.T) {
	spec, err := loadKern()
	if err != nil {
		t.Fatal(err)
	}
	names, err := counterNames(spec.Types)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != int(kernCounterCOUNTERS) || names[kernCounterCOUNTER_RING_FULL] != "ring_full" {
		t.Errorf("names are %v", names)
	}
}
