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
	fileBytes int64 // apparent size of one
	allBytes  int64 // of all together
}

// collectFrom bounds what is taken out of a box with the given limits. What it could write
// bounds the bytes: more than that can only be holes, or one file under many names, which a
// copy would turn into blocks.
func collectFrom(l box.Limits) collectLimits {
	return collectLimits{files: 1000, entries: 10_000, depth: 16, fileBytes: min(1<<30, l.ScratchBytes), allBytes: min(2<<30, l.ScratchBytes)}
}

// skippedNamed is how many refused entries are named each; the rest are counted.
const skippedNamed = 100

// collector copies the regular files below a directory that the code filled, after every
// process that could change it is dead. Each step opens relative to the directory above, and
// follows no link: what the names are cannot lead it anywhere else.
type collector struct {
	to      string // directory; files are numbered, so that their names need not be trusted
	limits  collectLimits
	files   []audit.OutputFile
	skipped []audit.SkippedOutput
	more    int // skipped but not named
	entries int
	bytes   int64
}

// collectOutputs copies from the directory from into the directory to, which it makes when
// there is something to put there. Also on error, what was collected till then counts.
func collectOutputs(from, to string, limits collectLimits) (*collector, error) {
	c := &collector{to: to, limits: limits}
	root, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		err = c.directory(os.NewFile(uintptr(root), from), "", 0)
	}
	if err != nil {
		return c, fmt.Errorf("collect outputs: %w", err)
	}
	return c, nil
}

func (c *collector) skip(name, reason string) {
	if len(c.skipped) >= skippedNamed {
		c.more++
		return
	}
	c.skipped = append(c.skipped, audit.SkippedOutput{Name: audit.Text(name), Reason: reason})
}

// directory takes dir over.
func (c *collector) directory(dir *os.File, prefix string, depth int) error {
	defer dir.Close()
	// A bound on names read before any is looked at: the directory may hold millions.
	names, err := dir.Readdirnames(c.limits.entries - c.entries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		name := path.Join(prefix, base)
		if c.entries >= c.limits.entries {
			c.skip(name, fmt.Sprintf("not looked at: more than %d entries", c.limits.entries))
			return nil
		}
		c.entries++
		if err := c.entry(dir, base, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) entry(dir *os.File, base, name string, depth int) error {
	// O_PATH opens anything without doing anything to it: no FIFO blocks, no device acts.
	handle, err := openBeneath(dir, base, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		c.skip(name, err.Error())
		return nil
	}
	defer handle.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(handle.Fd()), &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		if depth+1 > c.limits.depth {
			c.skip(name, fmt.Sprintf("deeper than %d directories", c.limits.depth))
			return nil
		}
		sub, err := openBeneath(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			c.skip(name, err.Error())
			return nil
		}
		return c.directory(sub, name, depth+1)
	default:
		c.skip(name, kindName(st.Mode)+", only regular files are handed out")
		return nil
	}
	switch {
	case len(c.files) >= c.limits.files:
		c.skip(name, fmt.Sprintf("more than %d files", c.limits.files))
		return nil
	case st.Size > c.limits.fileBytes:
		c.skip(name, fmt.Sprintf("%d bytes, the limit for one file is %d", st.Size, c.limits.fileBytes))
		return nil
	case c.bytes+st.Size > c.limits.allBytes:
		c.skip(name, fmt.Sprintf("%d bytes, the limit for all files together is %d", st.Size, c.limits.allBytes))
		return nil
	}
	src, err := openBeneath(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		c.skip(name, err.Error())
		return nil
	}
	defer src.Close()
	return c.file(src, name)
}

func (c *collector) file(src *os.File, name string) error {
	if err := os.MkdirAll(c.to, 0o700); err != nil {
		return err
	}
	dst, err := os.OpenFile(path.Join(c.to, strconv.Itoa(len(c.files))), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(dst, sum), src)
	if err != nil {
		return err
	}
	c.bytes += n
	c.files = append(c.files, audit.OutputFile{Name: audit.Text(name), Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return dst.Close()
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
