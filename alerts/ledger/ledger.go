// Package ledger keeps incidents and silences in one file, so that what was not told yet is told
// after a crash. It is an [incident.Store].
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolt "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"proctor/alerts/incident"
)

// A Ledger is an open file. Whoever opens it closes it. Its methods are for one goroutine at a time.
type Ledger struct {
	file string
	db   *bbolt.DB // nil while there is no room to make it
}

var incidents, silences = []byte("incidents"), []byte("silences")

// Open opens a file, which is made if there is none; if there is no room for that, by the first
// Save that finds some. One that is damaged is put aside under a name that is returned: alarms go
// on without what it had, rather than not at all.
func Open(file string) (l *Ledger, aside string, err error) {
	db, err := open(file)
	if damaged(err) {
		aside = file + ".damaged-" + time.Now().UTC().Format("20060102T150405")
		if rerr := os.Rename(file, aside); rerr != nil {
			return nil, "", fmt.Errorf("alarms' file: %w", errors.Join(err, rerr))
		}
		db, err = open(file)
	}
	if err != nil && !noRoom(err) {
		return nil, "", fmt.Errorf("alarms' file %s: %w: it must be readable and writable for root, and no other supervisor's", file, err)
	}
	return &Ledger{file, db}, aside, nil
}

func noRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

func damaged(err error) bool {
	return errors.Is(err, bolt.ErrInvalid) || errors.Is(err, bolt.ErrChecksum) || errors.Is(err, bolt.ErrVersionMismatch) || errors.Is(err, errContent)
}

var errContent = errors.New("its content can't be read")

// open opens a file and reads it through.
func open(file string) (_ *bbolt.DB, err error) {
	// A file that is cut, or a disk that fails, after check was through it has the library fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errContent, p)
		}
	}()
	cerr := check(file)
	if cerr != nil && !errors.Is(cerr, fs.ErrNotExist) {
		return nil, cerr
	}
	defer func() {
		if err != nil && errors.Is(cerr, fs.ErrNotExist) {
			_ = os.Remove(file) // half made, it would be taken for damaged
		}
	}()
	// Another supervisor that has it would have had the state directory.
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	// What is whole is not written to: there may be no room.
	whole := false
	err = db.View(func(tx *bbolt.Tx) error {
		if name, _ := tx.Cursor().First(); name == nil {
			return nil // as it was made, before it got anything
		}
		if whole = tx.Bucket(incidents) != nil && tx.Bucket(silences) != nil; !whole {
			return fmt.Errorf("%w: it has no incidents and silences", errContent)
		}
		_, _, err := load(tx)
		return err
	})
	if err != nil || whole {
		return db, err
	}
	return db, db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{incidents, silences} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close closes the file.
func (l *Ledger) Close() error {
	if l.db == nil {
		return nil
	}
	return l.db.Close()
}

// Load implements incident.Store.
func (l *Ledger) Load() (i []*incident.Incident, s []*incident.Silence, err error) {
	if l.db == nil {
		return nil, nil, nil
	}
	err = l.db.View(func(tx *bbolt.Tx) error {
		i, s, err = load(tx)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("alarms' file: %w", err)
	}
	return i, s, nil
}

func load(tx *bbolt.Tx) (i []*incident.Incident, s []*incident.Silence, err error) {
	if err := each(tx.Bucket(incidents), &i, func(i *incident.Incident) string { return i.ID }); err != nil {
		return nil, nil, err
	}
	err = each(tx.Bucket(silences), &s, func(s *incident.Silence) string { return s.ID })
	return i, s, err
}

func each[T any](b *bbolt.Bucket, into *[]*T, id func(*T) string) error {
	return b.ForEach(func(key, value []byte) error {
		v := new(T)
		if err := json.Unmarshal(value, v); err != nil {
			return fmt.Errorf("%w: %q: %w", errContent, key, err)
		}
		if id(v) != string(key) {
			return fmt.Errorf("%w: %q stands where %q belongs", errContent, id(v), key)
		}
		*into = append(*into, v)
		return nil
	})
}

// Save implements incident.Store. It returns when it is on the disk.
func (l *Ledger) Save(is []*incident.Incident, ss []*incident.Silence) error {
	return l.update(func(i, s *bbolt.Bucket) error {
		for _, one := range is {
			if err := put(i, one.ID, one); err != nil {
				return err
			}
		}
		for _, one := range ss {
			if err := put(s, one.ID, one); err != nil {
				return err
			}
		}
		return nil
	})
}

// Forget implements incident.Store.
func (l *Ledger) Forget(is, ss []string) error {
	if len(is)+len(ss) == 0 {
		return nil
	}
	return l.update(func(i, s *bbolt.Bucket) error {
		var errs []error
		for _, id := range is {
			errs = append(errs, i.Delete([]byte(id)))
		}
		for _, id := range ss {
			errs = append(errs, s.Delete([]byte(id)))
		}
		return errors.Join(errs...)
	})
}

func (l *Ledger) update(f func(i, s *bbolt.Bucket) error) error {
	if l.db == nil {
		db, err := open(l.file)
		if err != nil {
			return fmt.Errorf("alarms' file: %w", err)
		}
		l.db = db
	}
	err := l.db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket(incidents), tx.Bucket(silences)) })
	if err != nil {
		return fmt.Errorf("alarms' file: %w", err)
	}
	return nil
}

func put(b *bbolt.Bucket, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put([]byte(id), data)
}
