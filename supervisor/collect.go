package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor/box"
)

// collectLimits bound what is taken out of a box.
type collectLimits struct {
	files     int   // regular files handed out
	entries   int   // of any kind looked at
	depth     int   // directories below /outputs
	name      int   // bytes of a name, with its directories
	fileBytes int64 // apparent size of one
	allBytes  int64 // of all together
}

// collectFrom bounds what is taken out of a box with the given limits. What it could write
// bounds the bytes: more than that can only be holes, or one file under many names, which a
// copy would turn into blocks.
func collectFrom(l box.Limits) collectLimits {
	return collectLimits{files: 1000, entries: 10_000, depth: 16, name: 1024, fileBytes: min(1<<30, l.ScratchBytes), allBytes: min(2<<30, l.ScratchBytes)}
}

// skippedNamed is how many entries refused by one rule are named each; the rest are counted. It
// is one for each rule so that thousands refused by one do not keep those by another from being named.
const skippedNamed = 100

// A rule is what an entry can break.
type rule string

const (
	ruleKind      rule = "kind" // with the kind's name: each has its own count
	ruleEntries   rule = "entries"
	ruleDepth     rule = "depth"
	ruleName      rule = "name"
	ruleFiles     rule = "files"
	ruleFileBytes rule = "bytes of one"
	ruleAllBytes  rule = "bytes of all"
	ruleOpen      rule = "open"
	ruleRoom      rule = "room"
)

// collector copies the regular files below a directory that the code filled, after every
// process that could change it is dead. Each step opens relative to the directory above, and
// follows no link: what the names are cannot lead it anywhere else.
type collector struct {
	to      string // directory; files are numbered, so that their names need not be trusted
	limits  collectLimits
	files   []audit.OutputFile
	skipped []audit.SkippedOutput
	named   map[rule]int
	more    int // skipped but not named
	entries int
	bytes   int64
	full    error // there was no room for one, nor looked for any for those after it
	unkept  int   // how many these are
}

// collectOutputs copies from the directory from into the directory to, which it makes when
// there is something to put there. Also on error, what was collected till then counts.
func collectOutputs(from, to string, limits collectLimits) (*collector, error) {
	c := &collector{to: to, limits: limits, named: map[rule]int{}}
	root, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		err = c.directory(os.NewFile(uintptr(root), from), "", 0)
	}
	if err != nil {
		return c, fmt.Errorf("collect outputs: %w", err)
	}
	return c, nil
}

func (c *collector) skip(name string, r rule, format string, args ...any) {
	if c.named[r] >= skippedNamed {
		c.more++
		return
	}
	c.named[r]++
	c.skipped = append(c.skipped, audit.SkippedOutput{Name: audit.Text(name), Reason: fmt.Sprintf(format, args...)})
}

// directory takes dir over. Its directories come after everything else in it, so that what
// fills one of them does not use up the limits before what lies above it is looked at.
func (c *collector) directory(dir *os.File, prefix string, depth int) error {
	defer dir.Close()
	// A bound on names read before any is looked at: the directory may hold millions.
	names, err := dir.Readdirnames(c.limits.entries - c.entries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	slices.Sort(names)
	var below []string
	for _, base := range names {
		name := path.Join(prefix, base)
		if c.entries >= c.limits.entries {
			c.skip(name, ruleEntries, "not looked at: more than %d entries", c.limits.entries)
			break
		}
		c.entries++
		isDir, err := c.entry(dir, base, name)
		if err != nil {
			return err
		}
		if isDir {
			below = append(below, base)
		}
	}
	for _, base := range below {
		name := path.Join(prefix, base)
		if depth+1 > c.limits.depth {
			c.skip(name, ruleDepth, "deeper than %d directories", c.limits.depth)
			continue
		}
		sub, err := openBeneath(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			c.skip(name, ruleOpen, "%v", err)
			continue
		}
		if err := c.directory(sub, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// entry takes a regular file, says why it does not take what is neither that nor a directory,
// and leaves directories to the caller.
func (c *collector) entry(dir *os.File, base, name string) (isDir bool, err error) {
	// O_PATH opens anything without doing anything to it: no FIFO blocks, no device acts.
	handle, err := openBeneath(dir, base, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		c.skip(name, ruleOpen, "%v", err)
		return false, nil
	}
	defer handle.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(handle.Fd()), &st); err != nil {
		return false, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return true, nil
	default:
		kind := kindName(st.Mode)
		c.skip(name, ruleKind+rule(kind), "%s, only regular files are handed out", kind)
		return false, nil
	}
	switch {
	case len(name) > c.limits.name:
		c.skip(name, ruleName, "a name of %d bytes with its directories, the limit is %d", len(name), c.limits.name)
		return false, nil
	case len(c.files) >= c.limits.files:
		c.skip(name, ruleFiles, "more than %d files", c.limits.files)
		return false, nil
	case st.Size > c.limits.fileBytes:
		c.skip(name, ruleFileBytes, "%d bytes, the limit for one file is %d", st.Size, c.limits.fileBytes)
		return false, nil
	case c.bytes+st.Size > c.limits.allBytes:
		c.skip(name, ruleAllBytes, "%d bytes, the limit for all files together is %d", st.Size, c.limits.allBytes)
		return false, nil
	}
	src, err := openBeneath(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		c.skip(name, ruleOpen, "%v", err)
		return false, nil
	}
	defer src.Close()
	if c.full == nil {
		if err := c.file(src, name); !audit.IsFull(err) {
			return false, err
		} else if c.full = err; len(c.files) == 0 {
			_ = os.Remove(c.to) // if it came so far
		}
	}
	c.unkept++
	c.skip(name, ruleRoom, "there is no room to keep it: %v", c.full)
	return false, nil
}

// file copies one, or leaves nothing of it.
func (c *collector) file(src *os.File, name string) (err error) {
	if err := os.MkdirAll(c.to, 0o700); err != nil {
		return err
	}
	dst, err := os.OpenFile(path.Join(c.to, strconv.Itoa(len(c.files))), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		dst.Close()
		if err != nil {
			err = errors.Join(err, os.Remove(dst.Name()))
		}
	}()
	sum := sha256.New()
	n, err := copyData(dst, sum, src)
	if err != nil {
		return err
	}
	if err := dst.Close(); err != nil {
		return err
	}
	c.bytes += n
	c.files = append(c.files, audit.OutputFile{Name: audit.Text(name), Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// copyData copies a file that nobody writes to any more, holes as holes: they cost the run nothing,
// and must not cost more here.
func copyData(dst *os.File, sum io.Writer, src *os.File) (size int64, err error) {
	info, err := src.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size()
	fd := int(src.Fd())
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			data = size // a hole up to the end
		case err != nil:
			return 0, err
		}
		if _, err := io.CopyN(sum, zeros{}, data-at); err != nil {
			return 0, err
		}
		if at = data; at == size {
			break
		}
		hole, err := unix.Seek(fd, at, unix.SEEK_HOLE)
		if err != nil {
			return 0, err
		}
		if _, err := io.Copy(io.MultiWriter(io.NewOffsetWriter(dst, at), sum), io.NewSectionReader(src, at, hole-at)); err != nil {
			return 0, err
		}
		at = hole
	}
	return size, dst.Truncate(size)
}

// zeros is what a hole reads as.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func openBeneath(dir *os.File, name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func kindName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	default:
		return "a device"
	}
}
