package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrSevered says that the programs are attached to a cgroup that no longer exists: its
// directory was removed, and perhaps made again. [Open] repairs it.
var ErrSevered = errors.New("network programs are attached to a cgroup that is gone")

// Options of [Open].
type Options struct {
	// Cgroup is the directory of the parent cgroup in the v2 hierarchy. It exists, and
	// runs are its direct children.
	Cgroup string
	// Dir is a directory of the caller's. A bpffs is mounted at its bpf and holds the
	// pins; a tracefs is mounted at its tracing while Open runs.
	Dir string
	// Permitted are the system calls, by name, that the seccomp profile of boxes lets through.
	// When any other fails with EPERM or ENOSYS, that is recorded as refused.
	Permitted []string
	// Own are addresses of every run's network namespace that are no loopback addresses but
	// as good as one: at most one of each family.
	Own []netip.Addr
	// AllExits has every system call of the host pass one program at its exit, as must be where
	// the kernel can preempt itself. Default: where it can.
	AllExits bool
	// Logger is told what was taken over or repaired. Default: nothing is logged.
	Logger *slog.Logger
}

// A Sensor is the programs, loaded and attached. Its methods may be called at any time
// from any goroutine; Close and Remove once, when nothing else is.
type Sensor struct {
	opts     Options
	coll     *ebpf.Collection
	ring     *ebpf.MapSpec        // of a run's ring, but for its size
	senders  *ebpf.MapSpec        // of what is noted of who sent, of a run
	lookup   *ebpf.CollectionSpec // of a network namespace's program
	counters []string             // names, by index
	links    []attachment

	preemption *preemption
	allExits   bool // one program is at the exit of all calls
}

// Open loads the programs and attaches them. An attachment that an earlier process left
// below Dir is taken over: at every moment either the old programs are in force or the
// new ones. Runs that the earlier process watched are unknown to the new programs, which
// refuse them everything.
func Open(opts Options) (_ *Sensor, err error) {
	if opts.Cgroup == "" || opts.Dir == "" || len(opts.Permitted) == 0 {
		return nil, errors.New("sensor: Cgroup, Dir and Permitted must be given")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sensor{opts: opts}
	mounted, err := mountBPF(s.mountPoint())
	if err != nil {
		return nil, err
	}
	defer func() {
		switch {
		case err == nil:
		case mounted: // there was nothing before
			err = errors.Join(err, s.Remove())
		default:
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.MkdirAll(s.pinDir(), 0o700); err != nil {
		return nil, err
	}
	events, err := openTracefs(filepath.Join(s.opts.Dir, "tracing"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, events.unmount()) }()
	if err := s.load(events); err != nil {
		return nil, err
	}
	if err := s.attach(events); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Sensor) mountPoint() string { return filepath.Join(s.opts.Dir, "bpf") }

// pinDir is apart from the mount point, where some kernels put files of their own.
func (s *Sensor) pinDir() string { return filepath.Join(s.mountPoint(), "links") }

func (s *Sensor) load(events *tracefs) error {
	spec, err := loadKern()
	if err != nil {
		return err
	}
	if s.counters, err = counterNames(spec.Types); err != nil {
		return err
	}
	traced, err := events.exits()
	if err != nil {
		return err
	}
	types := btf.NewCache() // to parse the kernel's once
	if err := s.fit(spec, types); err != nil {
		return err
	}
	permitted := set(s.opts.Permitted)
	programs, err := byNumber(chooseForm(spec, s.allExits), permitted, traced)
	if err != nil {
		return err
	}
	if err := watch(spec, programs); err != nil {
		return err
	}
	setShapes(spec.Maps[kernMapShapes])
	s.lookup = separateLookup(spec)
	s.ring = spec.Maps[kernMapRings].InnerMap.Copy()
	s.senders = spec.Maps[kernMapSenders].InnerMap.Copy()
	s.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	if s.allExits {
		if err := fillExits(s.coll, programs); err != nil {
			return err
		}
	}
	s.links, err = attachments(spec, s.coll, permitted, traced)
	return err
}

// fit makes the programs what the options, the parent's place and this kernel need, and takes
// out those that only answer questions about these.
func (s *Sensor) fit(spec *ebpf.CollectionSpec, types *btf.Cache) error {
	if err := setOwn(spec, s.opts.Own); err != nil {
		return err
	}
	depth, err := cgroupLevel(spec, types, s.opts.Cgroup)
	if err != nil {
		return fmt.Errorf("level of cgroup %s: %w", s.opts.Cgroup, err)
	}
	if err := spec.Variables[kernVarRunLevel].Set(depth + 1); err != nil {
		return fmt.Errorf("set level: %w", err)
	}
	if err := chooseVariants(spec, types); err != nil {
		return err
	}
	if s.preemption, err = askPreemption(spec, types); err != nil {
		return err
	}
	can, known, err := s.preemption.now()
	if err != nil {
		return err
	}
	if can {
		s.opts.Logger.Info("the kernel can preempt itself: every system call of the host passes one program at its exit", "asked_in_vain", !known)
	}
	s.allExits = can || s.opts.AllExits
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("number of CPUs: %w", err)
	}
	spec.Maps[kernMapExecRecords].MaxEntries = uint32(cpus)
	delete(spec.Programs, kernProgLevel)
	delete(spec.Programs, kernProgPreempts)
	return nil
}

// chooseVariants tells the programs what this kernel's tracepoints pass: sched_process_exit
// does or does not tell the end of a process from the end of a thread, and mark_victim
// passes the victim or its number; and whether the network hooks may use a thread's storage.
func chooseVariants(spec *ebpf.CollectionSpec, types *btf.Cache) error {
	exit, err := tracepointParams(types, "sched_process_exit")
	if err != nil {
		return err
	}
	if err := spec.Variables[kernVarExitSaysGroupDead].Set(len(exit) > 1); err != nil {
		return fmt.Errorf("set exit variant: %w", err)
	}
	victim, err := tracepointParams(types, "mark_victim")
	if err != nil {
		return err
	}
	_, isPointer := victim[0].Type.(*btf.Pointer)
	if err := spec.Variables[kernVarVictimIsPassed].Set(isPointer); err != nil {
		return fmt.Errorf("set victim variant: %w", err)
	}
	err = features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnTaskStorageGet)
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("helpers of the network hooks: %w", err)
	}
	if err := spec.Variables[kernVarHooksHaveStorage].Set(err == nil); err != nil {
		return fmt.Errorf("set storage variant: %w", err)
	}
	return nil
}

// tracepointParams returns what the kernel's tracepoint of that name passes.
func tracepointParams(types *btf.Cache, name string) ([]btf.FuncParam, error) {
	kernel, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("kernel BTF: %w", err)
	}
	var hook *btf.Typedef
	if err := kernel.TypeByName("btf_trace_"+name, &hook); err != nil {
		return nil, fmt.Errorf("kernel BTF: %w", err)
	}
	if ptr, ok := hook.Type.(*btf.Pointer); ok {
		if proto, ok := ptr.Target.(*btf.FuncProto); ok && len(proto.Params) > 1 {
			return proto.Params[1:], nil // the first is the tracer's own
		}
	}
	return nil, fmt.Errorf("kernel BTF: %s is no function that is passed something", hook.Name)
}

// Close lets go of this process's handles. The pins stay, and with them all that is
// refused; runs that are still watched are refused nothing less.
func (s *Sensor) Close() error {
	var errs []error
	for _, a := range s.links {
		if a.link != nil {
			errs = append(errs, a.link.Close())
		}
	}
	s.links = nil
	if s.coll != nil {
		s.coll.Close()
		s.coll = nil
	}
	errs = append(errs, s.preemption.close())
	s.preemption = nil
	return errors.Join(errs...)
}

// Remove detaches and unpins everything, unmounts the bpffs, and closes the Sensor. It is
// for a clean stop: nothing may be running below the parent, since nothing is refused
// from here on.
func (s *Sensor) Remove() error {
	var errs []error
	for _, a := range s.links {
		if a.cgroup() {
			if err := os.Remove(filepath.Join(s.pinDir(), a.name)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	// A link is taken down with its last reference: at once when that is a descriptor, which
	// takes some 30 ms for a tracepoint, and in the background when it is a pin. So the pins
	// of what only observes go last.
	return errors.Join(errors.Join(errs...), s.Close(), os.RemoveAll(s.pinDir()), unmount(s.mountPoint()))
}

// Check reports whether the programs are still attached and pinned. An error that is
// [ErrSevered] means that tasks below the parent are not held by them, one that is
// [ErrPreemptible] that they are not always seen.
func (s *Sensor) Check() error {
	id, err := CgroupID(s.opts.Cgroup)
	if err != nil {
		return err
	}
	if !s.allExits {
		if can, _, err := s.preemption.now(); err != nil || can {
			return cmp.Or(err, ErrPreemptible)
		}
	}
	for _, a := range s.links {
		if _, err := os.Stat(filepath.Join(s.pinDir(), a.name)); err != nil {
			return fmt.Errorf("pin of %s: %w", a.name, err)
		}
		if !a.cgroup() {
			continue
		}
		at, err := linkCgroup(a.link)
		if err != nil {
			return fmt.Errorf("link of %s: %w", a.name, err)
		}
		if at != id {
			return fmt.Errorf("%s: cgroup %d, and %s is %d: %w", a.name, at, s.opts.Cgroup, id, ErrSevered)
		}
	}
	return nil
}

// linkCgroup returns the id of the cgroup a link holds, 0 when that cgroup is gone.
func linkCgroup(l link.Link) (uint64, error) {
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	cgroup := info.Cgroup()
	if cgroup == nil {
		return 0, fmt.Errorf("link type %v is not a cgroup's", info.Type)
	}
	return cgroup.CgroupId, nil
}

// CgroupID returns the id of a cgroup, which is the number of its directory.
func CgroupID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", dir, err)
	}
	return st.Ino, nil
}
