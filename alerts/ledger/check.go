package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The library maps a file and follows what it says: past the end, round in circles, and while
// opening in a goroutine of its own, whose panic nobody can catch. So a file is walked through
// here before the library has it, with every number looked at before it is used. Contents are
// left to who decodes them.

const (
	magic, version        = 0xED0CDAED, 2
	headerSize, entrySize = 16, 16
	branch, leaf          = 1, 2 // flags of a page
	bucketEntry           = 1    // flag of a leaf's entry
	minPage, maxPage      = 1 << 10, 16 << 20
	metaSize, checksumAt  = 64, 56
	bucketSize, firstPage = 16, 2 // pages 0 and 1 are the metas
)

var order = binary.NativeEndian

// A walk is one look through a file.
type walk struct {
	file     io.ReaderAt
	pageSize uint64
	end      uint64 // the first page that is not used any more
	seen     map[uint64]bool
}

// check says what is wrong with a file; with nothing in it, nothing is.
func check(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	w := walk{file: f, seen: map[uint64]bool{}}
	root, err := w.meta(uint64(info.Size()))
	if err == nil {
		err = w.tree(root, nil, nil, true)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errContent, err)
	}
	return nil
}

// meta reads what the newer of the two metas says, as the library would.
func (w *walk) meta(size uint64) (root uint64, err error) {
	first, ok := w.metaAt(0)
	if ok {
		w.pageSize = uint64(order.Uint32(first[8:]))
	} else {
		for w.pageSize = minPage; ; w.pageSize *= 2 {
			if w.pageSize > maxPage {
				return 0, errors.New("neither of its first two pages is whole")
			}
			if m, ok := w.metaAt(w.pageSize); ok && uint64(order.Uint32(m[8:])) == w.pageSize {
				break
			}
		}
	}
	if w.pageSize < minPage || w.pageSize > maxPage {
		return 0, fmt.Errorf("pages of %d bytes", w.pageSize)
	}
	newest := first
	if second, ok2 := w.metaAt(w.pageSize); ok2 && (!ok || order.Uint64(second[48:]) > order.Uint64(first[48:])) {
		newest = second
	}
	root, w.end = order.Uint64(newest[16:]), order.Uint64(newest[40:])
	if w.end > size/w.pageSize {
		return 0, fmt.Errorf("%d pages in %d bytes", w.end, size)
	}
	return root, nil
}

func (w *walk) metaAt(offset uint64) ([]byte, bool) {
	page, err := w.read(offset, headerSize+metaSize)
	if err != nil {
		return nil, false
	}
	m := page[headerSize:]
	sum := fnv.New64a()
	sum.Write(m[:checksumAt])
	return m, order.Uint32(m) == magic && order.Uint32(m[4:]) == version && order.Uint64(m[checksumAt:]) == sum.Sum64()
}

func (w *walk) read(offset, n uint64) ([]byte, error) {
	b := make([]byte, n)
	_, err := w.file.ReadAt(b, int64(offset))
	return b, err
}

// tree walks through a page and those below it, whose keys are from low to before high, where these
// are given. Entries of the root are buckets, others are not.
func (w *walk) tree(id uint64, low, high []byte, buckets bool) error {
	page, err := w.page(id)
	if err != nil {
		return err
	}
	entries, err := w.entries(page, low, high)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	for i, e := range entries {
		switch {
		case e.leaf && e.bucket != buckets:
			return fmt.Errorf("page %d: entry %d is a bucket: %t", id, i, e.bucket)
		case e.leaf && buckets:
			err = w.bucket(e.value)
		case !e.leaf:
			next := high
			if i+1 < len(entries) {
				next = entries[i+1].key
			}
			err = w.tree(e.page, e.key, next, buckets)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket walks through one: a tree of its own, or one page within the entry.
func (w *walk) bucket(value []byte) error {
	if len(value) < bucketSize {
		return fmt.Errorf("a bucket of %d bytes", len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return w.tree(root, nil, nil, false)
	}
	page := value[bucketSize:]
	if len(page) < headerSize || order.Uint64(page) != 0 || order.Uint16(page[8:]) != leaf {
		return errors.New("a bucket that is no page")
	}
	entries, err := w.entries(page, nil, nil)
	for _, e := range entries {
		if e.bucket {
			return errors.New("a bucket within a bucket")
		}
	}
	return err
}

// page reads a page with those that go on with it, each of which has one place in one tree.
func (w *walk) page(id uint64) ([]byte, error) {
	if id < firstPage || id >= w.end {
		return nil, fmt.Errorf("page %d of %d", id, w.end)
	}
	header, err := w.read(id*w.pageSize, headerSize)
	if err != nil {
		return nil, err
	}
	flags, more := order.Uint16(header[8:]), uint64(order.Uint32(header[12:]))
	if order.Uint64(header) != id || flags != branch && flags != leaf || id+more >= w.end {
		return nil, fmt.Errorf("page %d is %x", id, header)
	}
	for n := id; n <= id+more; n++ {
		if w.seen[n] {
			return nil, fmt.Errorf("page %d has two places", n)
		}
		w.seen[n] = true
	}
	return w.read(id*w.pageSize, (1+more)*w.pageSize)
}

// An entry is one of a page's: of a leaf a value, of a branch another page.
type entry struct {
	leaf, bucket bool
	key, value   []byte
	page         uint64
}

// entries are those of a page, in order of their keys.
func (w *walk) entries(page, low, high []byte) (all []entry, err error) {
	count, isLeaf := uint64(order.Uint16(page[10:])), order.Uint16(page[8:]) == leaf
	if headerSize+count*entrySize > uint64(len(page)) || count == 0 && !isLeaf {
		return nil, fmt.Errorf("%d entries in %d bytes", count, len(page))
	}
	for n := range count {
		at := headerSize + n*entrySize
		b := page[at : at+entrySize]
		e := entry{leaf: isLeaf}
		var pos, keySize, valueSize uint64
		if isLeaf {
			flags := order.Uint32(b)
			if flags&^bucketEntry != 0 {
				return nil, fmt.Errorf("entry %d has flags %x", n, flags)
			}
			e.bucket = flags == bucketEntry
			pos, keySize, valueSize = at+uint64(order.Uint32(b[4:])), uint64(order.Uint32(b[8:])), uint64(order.Uint32(b[12:]))
		} else {
			pos, keySize, e.page = at+uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint64(b[8:])
		}
		if keySize == 0 || pos < headerSize+count*entrySize || pos+keySize+valueSize > uint64(len(page)) {
			return nil, fmt.Errorf("entry %d has %d and %d bytes at %d", n, keySize, valueSize, pos)
		}
		e.key, e.value = page[pos:pos+keySize], page[pos+keySize:pos+keySize+valueSize]
		if n == 0 && low != nil && bytes.Compare(e.key, low) < 0 || n > 0 && bytes.Compare(e.key, all[n-1].key) <= 0 || high != nil && bytes.Compare(e.key, high) >= 0 {
			return nil, fmt.Errorf("the key of entry %d is out of order", n)
		}
		all = append(all, e)
	}
	return all, nil
}
