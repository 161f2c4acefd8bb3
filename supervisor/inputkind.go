package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// strangers are the file systems whose files are not what the caller has on a disk or in memory, by
// what they are instead.
var strangers = []struct {
	what   string
	magics []int64
}{
	{"lies on a FUSE file system", []int64{unix.FUSE_SUPER_MAGIC}},
	{"is no file with content of its own, but the kernel's word (as /proc and /sys hold)", []int64{
		unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.AAFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.RDTGROUP_SUPER_MAGIC, unix.BINFMTFS_MAGIC,
		unix.XENFS_SUPER_MAGIC, unix.OPENPROM_SUPER_MAGIC, unix.USBDEVICE_SUPER_MAGIC,
		0x62656570 /* configfs */, 0x65735543 /* fusectl */, 0x67596969 /* rpc_pipefs */, 0x6e667364, /* nfsd */
	}},
	{"is a namespace", []int64{unix.NSFS_MAGIC}},
	{"is a process", []int64{unix.PID_FS_MAGIC}},
	{"is a message queue", []int64{0x19800202 /* mqueue */}},
	{"is an event, a timer or another handle of the kernel's", []int64{unix.ANON_INODE_FS_MAGIC}},
	{"is memory that is read by mapping it, if at all", []int64{unix.SECRETMEM_MAGIC, unix.DMA_BUF_MAGIC, unix.GUEST_MEMFD_MAGIC}},
}

// checkInput takes a descriptor only if its holder was let read that very file: a regular
// file opened for reading. An O_PATH descriptor proves no such right; a FUSE file system
// could stall the supervisor or change its mind; and what the kernel tells in a file it may
// tell by who reads, which would be the supervisor.
//
// A FUSE file system may also never say what it is. Then this does not return, which costs the caller
// one of the connections that it may have, and nobody else anything.
func checkInput(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_PATH != 0 {
		return errors.New("was opened with O_PATH, which gives no right to read it")
	}
	if mode := flags & unix.O_ACCMODE; mode != unix.O_RDONLY && mode != unix.O_RDWR {
		return errors.New("was not opened for reading")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	for _, s := range strangers {
		if slices.Contains(s.magics, int64(fs.Type)) {
			return errors.New(s.what)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return errors.New("is a directory: a client passes the files beneath it")
	default:
		return fmt.Errorf("is %s", kindName(st.Mode))
	}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return checkOverlay(fd, &st)
	}
	return nil
}

// checkOverlay takes the overlays that the supervisor's own mount table has, which root made. One
// that a user made, in namespaces of theirs, may lie on FUSE, and does not say so.
func checkOverlay(fd int, st *unix.Stat_t) error {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return err
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(info), "mnt_id:")
	mount, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 3 && strings.Contains(line, " - overlay ") && (fields[0] == mount || fields[2] == device) {
			return nil
		}
	}
	return errors.New("lies on an overlay that is not the host's but a user's own, which may be made of anything")
}
