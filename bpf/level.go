package bpf

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// cgroupLevel asks the kernel how deep a cgroup is. Counting its path's elements would
// be wrong in a cgroup namespace or below a bind mount.
func cgroupLevel(spec *ebpf.CollectionSpec, types *btf.Cache, dir string) (uint32, error) {
	alone := &ebpf.CollectionSpec{
		Programs:  map[string]*ebpf.ProgramSpec{kernProgLevel: spec.Programs[kernProgLevel]},
		Types:     spec.Types,
		ByteOrder: spec.ByteOrder,
	}
	coll, err := ebpf.NewCollectionWithOptions(alone, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return 0, fmt.Errorf("load iterator: %w", err)
	}
	defer coll.Close()
	cgroup, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer cgroup.Close()

	iterator, err := iterateCgroup(coll.Programs[kernProgLevel], cgroup)
	if err != nil {
		return 0, err
	}
	defer iterator.Close()
	var depth uint32
	raw := make([]byte, unsafe.Sizeof(depth))
	if _, err := io.ReadFull(iterator, raw); err != nil {
		return 0, fmt.Errorf("read iterator: %w", err)
	}
	return binary.NativeEndian.Uint32(raw), nil
}

// iterateCgroup runs an iterator over one cgroup. The link package can't: it has no way
// to say which.
func iterateCgroup(prog *ebpf.Program, cgroup *os.File) (*os.File, error) {
	which := struct {
		order uint32
		fd    uint32
		id    uint64
	}{order: unix.BPF_CGROUP_ITER_SELF_ONLY, fd: uint32(cgroup.Fd())}
	create := struct {
		prog, target, attach, flags uint32
		info                        unsafe.Pointer
		infoLen                     uint32
		_                           uint32
	}{
		prog:    uint32(prog.FD()),
		attach:  uint32(ebpf.AttachTraceIter),
		info:    unsafe.Pointer(&which),
		infoLen: uint32(unsafe.Sizeof(which)),
	}
	link, err := bpfCall(unix.BPF_LINK_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return nil, fmt.Errorf("attach iterator: %w", err)
	}
	defer unix.Close(link)
	open := struct{ link, flags uint32 }{link: uint32(link)}
	fd, err := bpfCall(unix.BPF_ITER_CREATE, unsafe.Pointer(&open), unsafe.Sizeof(open))
	if err != nil {
		return nil, fmt.Errorf("make iterator: %w", err)
	}
	return os.NewFile(uintptr(fd), "cgroup iterator"), nil
}

func bpfCall(cmd int, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(cmd), uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
