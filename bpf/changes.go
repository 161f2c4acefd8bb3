package bpf

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proctor/audit"
)

// changes are the calls that change a name or an attribute of a file, with the places of
// their arguments, counted from 1. Calls that a kernel or architecture does not have are
// passed over.
var changes = map[string]kernShape{
	"truncate":  {Act: actTruncate, Path: 1, Value: 2},
	"ftruncate": {Act: actTruncate, Fd: 1, Value: 2},

	"unlink":   {Act: actUnlink, Path: 1},
	"unlinkat": {Act: actUnlink, Dir: 1, Path: 2, Flags: 3},
	"rmdir":    {Act: actRmdir, Path: 1},

	"rename":    {Act: actRename, Path: 1, To: 2},
	"renameat":  {Act: actRename, Dir: 1, Path: 2, ToDir: 3, To: 4},
	"renameat2": {Act: actRename, Dir: 1, Path: 2, ToDir: 3, To: 4, Flags: 5, Value2: 5},
	"link":      {Act: actLink, Path: 1, To: 2},
	"linkat":    {Act: actLink, Dir: 1, Path: 2, ToDir: 3, To: 4},
	"symlink":   {Act: actSymlink, Path: 2, To: 1, ToIsText: 1},
	"symlinkat": {Act: actSymlink, Dir: 2, Path: 3, To: 1, ToIsText: 1},

	"mkdir":   {Act: actMkdir, Path: 1, Value: 2},
	"mkdirat": {Act: actMkdir, Dir: 1, Path: 2, Value: 3},
	"mknod":   {Act: actMknod, Path: 1, Value: 2, Value2: 3},
	"mknodat": {Act: actMknod, Dir: 1, Path: 2, Value: 3, Value2: 4},

	"chmod":     {Act: actChmod, Path: 1, Value: 2},
	"fchmod":    {Act: actChmod, Fd: 1, Value: 2},
	"fchmodat":  {Act: actChmod, Dir: 1, Path: 2, Value: 3},
	"fchmodat2": {Act: actChmod, Dir: 1, Path: 2, Value: 3},
	"chown":     {Act: actChown, Path: 1, Owner: 2},
	"lchown":    {Act: actChown, Path: 1, Owner: 2},
	"fchown":    {Act: actChown, Fd: 1, Owner: 2},
	"fchownat":  {Act: actChown, Dir: 1, Path: 2, Owner: 3},

	"utime":     {Act: actTimes, Path: 1},
	"utimes":    {Act: actTimes, Path: 1},
	"futimesat": {Act: actTimes, Dir: 1, Path: 2},
	"utimensat": {Act: actTimes, Dir: 1, Path: 2},

	"setxattr":     {Act: actSetXattr, Path: 1, To: 2, ToIsText: 1},
	"lsetxattr":    {Act: actSetXattr, Path: 1, To: 2, ToIsText: 1},
	"fsetxattr":    {Act: actSetXattr, Fd: 1, To: 2, ToIsText: 1},
	"removexattr":  {Act: actRemoveXattr, Path: 1, To: 2, ToIsText: 1},
	"lremovexattr": {Act: actRemoveXattr, Path: 1, To: 2, ToIsText: 1},
	"fremovexattr": {Act: actRemoveXattr, Fd: 1, To: 2, ToIsText: 1},
}

const (
	actTruncate    = uint8(kernChangeActCHANGE_TRUNCATE)
	actUnlink      = uint8(kernChangeActCHANGE_UNLINK)
	actRmdir       = uint8(kernChangeActCHANGE_RMDIR)
	actRename      = uint8(kernChangeActCHANGE_RENAME)
	actLink        = uint8(kernChangeActCHANGE_LINK)
	actSymlink     = uint8(kernChangeActCHANGE_SYMLINK)
	actMkdir       = uint8(kernChangeActCHANGE_MKDIR)
	actMknod       = uint8(kernChangeActCHANGE_MKNOD)
	actChmod       = uint8(kernChangeActCHANGE_MODE)
	actChown       = uint8(kernChangeActCHANGE_OWNER)
	actTimes       = uint8(kernChangeActCHANGE_TIMES)
	actSetXattr    = uint8(kernChangeActCHANGE_XATTR_SET)
	actRemoveXattr = uint8(kernChangeActCHANGE_XATTR_REMOVE)
)

// setShapes tells the change program what the calls' arguments are.
func setShapes(m *ebpf.MapSpec) {
	for name, shape := range changes {
		if number, known := native.SyscallNames[name]; known {
			m.Contents = append(m.Contents, ebpf.MapKV{Key: uint32(number), Value: shape})
		}
	}
}

// acts are the record's names of changes.
var acts = map[kernChangeAct]audit.ChangeAct{
	kernChangeActCHANGE_TRUNCATE: audit.ChangeTruncate, kernChangeActCHANGE_UNLINK: audit.ChangeUnlink,
	kernChangeActCHANGE_RMDIR: audit.ChangeRmdir, kernChangeActCHANGE_RENAME: audit.ChangeRename,
	kernChangeActCHANGE_EXCHANGE: audit.ChangeExchange, kernChangeActCHANGE_LINK: audit.ChangeLink,
	kernChangeActCHANGE_SYMLINK: audit.ChangeSymlink, kernChangeActCHANGE_MKDIR: audit.ChangeMkdir,
	kernChangeActCHANGE_MKNOD: audit.ChangeMknod, kernChangeActCHANGE_MODE: audit.ChangeMode,
	kernChangeActCHANGE_OWNER: audit.ChangeOwner, kernChangeActCHANGE_TIMES: audit.ChangeTimes,
	kernChangeActCHANGE_XATTR_SET: audit.ChangeSetXattr, kernChangeActCHANGE_XATTR_REMOVE: audit.ChangeRemoveXattr,
}

// emptyPath are the acts that can be done to a descriptor by giving no name.
var emptyPath = []audit.ChangeAct{audit.ChangeLink, audit.ChangeOwner, audit.ChangeMode, audit.ChangeTimes}

func decodeChange(raw []byte) (*audit.Change, error) {
	v, rest, err := fixed[kernChangeEvent](raw)
	if err != nil {
		return nil, err
	}
	act, known := acts[v.Act]
	if !known {
		return nil, fmt.Errorf("%w: change %d", errRecord, v.Act)
	}
	p := parts{rest: rest}
	path, first := p.path(v.Path)
	dir, base := p.path(v.Dir)
	to, second := p.path(v.To)
	toDir, toBase := p.path(v.ToDir)
	if err := p.end(); err != nil {
		return nil, err
	}
	c := &audit.Change{
		Act: act, Path: path, Dir: dir, Errno: errno(v.Result),
		Unresolved: first.unresolved, Deleted: first.deleted,
		Truncated: first.truncated || second.truncated,
		Raced:     first.raced || base.raced || second.raced || toBase.raced,
	}
	if path == "" && dir != "" && !first.truncated && c.Errno == "" && slices.Contains(emptyPath, act) {
		// The descriptor was the file's own: AT_EMPTY_PATH, or no path at all.
		c.Path, c.Dir, c.Unresolved, c.Deleted = dir, "", base.unresolved, base.deleted
	}
	switch act {
	case audit.ChangeSymlink:
		c.Target = to
	case audit.ChangeSetXattr, audit.ChangeRemoveXattr:
		c.Attribute = to
	default:
		c.To, c.ToDir = to, toDir
	}
	switch act {
	case audit.ChangeTruncate:
		length := int64(v.Value)
		c.Length = &length
	case audit.ChangeMkdir, audit.ChangeMknod, audit.ChangeMode:
		c.Mode = fmt.Sprintf("%#o", v.Value&0o177777)
	case audit.ChangeRename:
		c.Whiteout = v.Value2&unix.RENAME_WHITEOUT != 0
	case audit.ChangeOwner:
		c.Owner = owner(uint32(v.Value>>32)) + ":" + owner(uint32(v.Value))
	}
	return c, nil
}

func owner(id uint32) string { return strconv.FormatInt(int64(int32(id)), 10) }
