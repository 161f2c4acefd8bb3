package images

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// uncheckBytecode marks compiled Python files as good whatever their source: on a read-only root they can't go stale,
// and an import then opens one file, where a checked one makes Python read and hash the source as well.
func uncheckBytecode(root *os.Root) error {
	const (
		header    = 16   // magic, flags, and 8 bytes of hash or of time and size
		hashBased = 0b01 // a further bit, left out here, asks for the check
	)
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path.Ext(p) != ".pyc" {
			return err
		}
		f, err := root.OpenFile(p, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		var h [header]byte
		if n, err := f.ReadAt(h[:], 0); n < header {
			return fmt.Errorf("/%s: not compiled Python: %w", p, err)
		}
		if binary.LittleEndian.Uint32(h[4:])&hashBased == 0 {
			clear(h[8:])
		}
		binary.LittleEndian.PutUint32(h[4:], hashBased)
		if _, err := f.WriteAt(h[:], 0); err != nil {
			return err
		}
		return f.Close()
	})
}
