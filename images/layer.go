package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// layerStats is what went into a layer.
type layerStats struct {
	bytes, files int64
	stripped     []string // paths that lost setuid or setgid bits
}

// writeLayer writes the tree at root as a tar stream in which the same tree always gives the same bytes: sorted, owners
// as numbers, times no later than epoch. Setuid and setgid bits and extended attributes (file capabilities are one) are
// left out. Devices, FIFOs and sockets are errors.
func writeLayer(w io.Writer, root string, epoch time.Time, progress Progress) (layerStats, error) {
	var (
		st    layerStats
		tw    = tar.NewWriter(w)
		links = map[inode]string{}
	)
	total, err := treeBytes(root)
	if err != nil {
		return st, fmt.Errorf("pack layer: %w", err)
	}
	step := Step{Phase: "pack layer", Total: total, Unit: "bytes"}
	progress.report(step)
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == root {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, root+"/")
		h, err := layerHeader(p, name, info, epoch)
		if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			st.stripped = append(st.stripped, "/"+name)
		}
		st.files++
		if h.Typeflag == tar.TypeReg {
			id := inodeOf(info)
			if first, ok := links[id]; ok && id.shared {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
				return tw.WriteHeader(h)
			}
			links[id] = name
			if err := addFile(tw, h, p); err != nil {
				return err
			}
			st.bytes += h.Size
			step.Done = st.bytes
			progress.report(step)
			return nil
		}
		return tw.WriteHeader(h)
	})
	if err != nil {
		return st, fmt.Errorf("pack layer: %w", err)
	}
	if err := tw.Close(); err != nil {
		return st, fmt.Errorf("pack layer: %w", err)
	}
	return st, nil
}

// treeBytes is what will be packed, hard links counted once.
func treeBytes(root string) (total int64, err error) {
	seen := map[inode]bool{}
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if id := inodeOf(info); !seen[id] {
			seen[id] = true
			total += info.Size()
		}
		return nil
	})
	return total, err
}

func layerHeader(p, name string, info fs.FileInfo, epoch time.Time) (*tar.Header, error) {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("/%s: no owner known", name)
	}
	h := &tar.Header{
		Name:    name,
		Mode:    int64(info.Mode().Perm()),
		Uid:     int(sys.Uid),
		Gid:     int(sys.Gid),
		ModTime: info.ModTime().UTC().Truncate(time.Second),
	}
	if h.ModTime.After(epoch) {
		h.ModTime = epoch
	}
	if info.Mode()&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch info.Mode().Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		target, err := os.Readlink(p)
		if err != nil {
			return nil, err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	default:
		return nil, fmt.Errorf("/%s is a %s: an image holds files, directories and symbolic links only; remove it in the recipe",
			name, kind(info.Mode()))
	}
	return h, nil
}

func addFile(tw *tar.Writer, h *tar.Header, p string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, f)
	if err != nil {
		return fmt.Errorf("/%s: %w", h.Name, err)
	}
	if n != h.Size {
		return fmt.Errorf("/%s: %w", h.Name, errors.New("changed while it was packed"))
	}
	return nil
}

func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeDevice != 0:
		return "device node"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "special file"
}

type inode struct {
	dev, ino uint64
	shared   bool
}

func inodeOf(info fs.FileInfo) inode {
	sys := info.Sys().(*syscall.Stat_t)
	return inode{dev: sys.Dev, ino: sys.Ino, shared: sys.Nlink > 1}
}
