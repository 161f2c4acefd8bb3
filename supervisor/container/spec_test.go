package container

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"proctor/supervisor/box"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testLimits = box.Limits{
	Timeout: time.Minute, Memory: 1 << 30, CPUs: 1.5, CPUTime: time.Hour, Processes: 256, ScratchBytes: 512 << 20, ScratchInodes: 65_536, OutputBytes: 1 << 20, OpenFiles: 4096, AuditEvents: 250_000,
}

func testSpec() *specs.Spec {
	return ociSpec(box.Spec{ID: "id", Image: "image", Limits: testLimits, NetNS: "/run/p/netns/id", Resolver: netip.MustParseAddr("192.0.2.53")},
		1<<30, "proctor/id", &workspace{dir: "/run/p/boxes/id"}, "/lib/proctor-init")
}

// The whole of a box's specification but for its seccomp profile, to be looked at when it changes.
func TestSpecGolden(t *testing.T) {
	s := testSpec()
	s.Linux.Seccomp = nil
	got, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "spec.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
		t.Errorf("if it is meant, run the test with -update: %s", diff)
	}
}

// What must hold however the specification changes.
func TestSpecConfines(t *testing.T) {
	s := testSpec()
	p := s.Process
	if !p.NoNewPrivileges {
		t.Error("new privileges")
	}
	if c := p.Capabilities; c == nil || len(c.Bounding)+len(c.Effective)+len(c.Inheritable)+len(c.Permitted)+len(c.Ambient) > 0 {
		t.Errorf("capabilities %+v", c)
	}
	if p.User.UID == 0 || p.User.GID == 0 || len(p.User.AdditionalGids) > 0 || p.Terminal || len(p.Env) > 0 {
		t.Errorf("process %+v", p)
	}
	if !s.Root.Readonly {
		t.Error("the root can be written")
	}
	if s.Hooks != nil || len(s.Linux.Devices) > 0 || s.Linux.Seccomp == nil {
		t.Error("hooks, devices, or no seccomp profile")
	}
	namespaces := map[specs.LinuxNamespaceType]string{}
	for _, n := range s.Linux.Namespaces {
		namespaces[n.Type] = n.Path
	}
	for _, n := range []specs.LinuxNamespaceType{specs.UserNamespace, specs.PIDNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
		if path, ok := namespaces[n]; !ok || path != "" {
			t.Errorf("%s namespace: new %v, path %q", n, ok, path)
		}
	}
	if namespaces[specs.NetworkNamespace] != "/run/p/netns/id" {
		t.Errorf("network namespace %q", namespaces[specs.NetworkNamespace])
	}
	for _, ids := range [][]specs.LinuxIDMapping{s.Linux.UIDMappings, s.Linux.GIDMappings} {
		if len(ids) != 1 || ids[0].ContainerID != 0 || ids[0].HostID != 1<<30 || ids[0].Size != idRange {
			t.Errorf("ids %+v", ids)
		}
	}
	limits := map[string][2]uint64{}
	for _, l := range p.Rlimits {
		limits[l.Type] = [2]uint64{l.Soft, l.Hard}
	}
	if len(limits) != 5 || limits["RLIMIT_CORE"] != [2]uint64{1, 1} || limits["RLIMIT_RTPRIO"] != [2]uint64{} || limits["RLIMIT_NICE"] != [2]uint64{} || limits["RLIMIT_NOFILE"] != [2]uint64{1024, 4096} {
		t.Errorf("rlimits %v", limits)
	}
	for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/kallsyms", "/proc/kmsg", "/proc/sched_debug", "/proc/cmdline", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/pressure"} {
		if !slices.Contains(s.Linux.MaskedPaths, path) {
			t.Errorf("%s can be read", path)
		}
	}
	for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger"} {
		if !slices.Contains(s.Linux.ReadonlyPaths, path) {
			t.Errorf("%s can be written", path)
		}
	}
	if r := s.Linux.Resources.Devices; len(r) == 0 || r[0].Allow || r[0].Access != "rwm" {
		t.Errorf("device rules %+v", r)
	}
	for _, d := range s.Linux.Resources.Devices[1:] {
		if d.Type != "c" || strings.Contains(d.Access, "m") || d.Major == nil || d.Minor == nil {
			t.Errorf("device rule %+v", d)
		}
	}
}

func TestSpecMounts(t *testing.T) {
	writable := []string{"/outputs", "/scratch", "/tmp", "/var/tmp", "/dev/shm"}
	for _, m := range testSpec().Mounts {
		for _, option := range []string{"nosuid", "nodev"} {
			if m.Destination != "/dev" && !slices.Contains(m.Options, option) {
				t.Errorf("%s without %s", m.Destination, option)
			}
		}
		if m.Type != "bind" {
			if m.Type != "proc" && m.Destination != "/dev" {
				t.Errorf("%s is a %s", m.Destination, m.Type)
			}
			continue
		}
		if ro := slices.Contains(m.Options, "ro"); ro == slices.Contains(writable, m.Destination) {
			t.Errorf("%s read-only: %v", m.Destination, ro)
		}
		if m.Source != "/lib/proctor-init" && !strings.HasPrefix(m.Source, "/run/p/boxes/id/") {
			t.Errorf("%s shows %s of the host", m.Destination, m.Source)
		}
		if !slices.Contains(m.Options, "private") {
			t.Errorf("%s is not private", m.Destination)
		}
	}
}

// Scratch that is full is an error of the writer's, not one that ends the box for memory.
func TestSpecMemoryHoldsScratch(t *testing.T) {
	r := testSpec().Linux.Resources
	least := testLimits.Memory + testLimits.ScratchBytes + testLimits.ScratchInodes*1024
	if *r.Memory.Limit < least || *r.Memory.Limit > least+64<<20 || *r.Memory.Swap != *r.Memory.Limit {
		t.Errorf("memory %d, with swap %d, want a little over %d", *r.Memory.Limit, *r.Memory.Swap, least)
	}
	if *r.CPU.Quota != 150_000 || *r.CPU.Period != 100_000 {
		t.Errorf("quota %d of %d", *r.CPU.Quota, *r.CPU.Period)
	}
	if *r.Pids.Limit != 256 {
		t.Errorf("pids %d", *r.Pids.Limit)
	}
}

func TestSpecFewOpenFiles(t *testing.T) {
	limits := testLimits
	limits.OpenFiles = 16
	s := ociSpec(box.Spec{Limits: limits}, 1<<30, "g", &workspace{dir: "/w"}, "/i")
	files := slices.IndexFunc(s.Process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_NOFILE" })
	if l := s.Process.Rlimits[files]; l.Soft != 16 || l.Hard != 16 {
		t.Errorf("%+v: runc refuses a soft limit above the hard one", l)
	}
}

func TestProcessors(t *testing.T) {
	var p processors
	whole := p.take(1 << 20)
	all := whole.n
	if all < 1 || whole.set != (box.CPUSet{}) {
		t.Errorf("%d processors, set %x", all, whole.set)
	}
	for limit, want := range map[float64]int{0.05: 1, 1: 1, 1.01: 2, float64(all): all, float64(all) + 0.5: all} {
		c := p.take(limit)
		if want = min(want, all); c.n != want {
			t.Errorf("%g: %d, want %d", limit, c.n, want)
		}
		if n := count(c.set); n != 0 && n != c.n || n == 0 && c.n != all {
			t.Errorf("%g: %d shown and %d set of %d", limit, c.n, n, all)
		}
		p.give(c)
	}
	for i, n := range p.boxes {
		if n != 0 {
			t.Errorf("processor %d is still counted %d times", i, n)
		}
	}
}

// As many boxes as there are processors get one each, and the one that is given back is the
// next to be taken.
func TestProcessorsSpread(t *testing.T) {
	var p processors
	all := p.take(1 << 20).n
	if all == 1 {
		return // there is nothing to spread over
	}
	held := map[box.CPUSet]shownCPUs{}
	for range all {
		c := p.take(1)
		held[c.set] = c
	}
	if len(held) != all {
		t.Errorf("%d boxes are on %d of %d processors", all, len(held), all)
	}
	for set, c := range held {
		p.give(c)
		if again := p.take(1); again.set != set {
			t.Errorf("took %x while %x is free", again.set, set)
		}
	}
}

func count(s box.CPUSet) (n int) {
	for _, word := range s {
		for ; word != 0; word &= word - 1 {
			n++
		}
	}
	return n
}

func TestIDRanges(t *testing.T) {
	r := idRanges{used: map[uint32]bool{}}
	seen := map[uint32]bool{}
	for range rangeCount {
		base := r.take()
		if seen[base] || base%idRange != 0 || base < 1<<30 || base > 1<<31-idRange {
			t.Fatalf("range at %#x", base)
		}
		seen[base] = true
	}
	// All are out; one that comes back is the next.
	r.give(1 << 30)
	if base := r.take(); base != 1<<30 {
		t.Errorf("range at %#x", base)
	}
}

func TestCPUList(t *testing.T) {
	for n, want := range map[int]string{1: "0\n", 2: "0-1\n", 64: "0-63\n"} {
		if got := cpuList(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
