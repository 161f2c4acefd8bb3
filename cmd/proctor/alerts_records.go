package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"proctor/alerts/sign"
	"proctor/alerts/spike"
	"proctor/audit"
)

const (
	maxLine     = 64 << 20 // bytes of an event: some thousand inputs fit
	maxWarnings = 3        // about the lines of one file, and about profiles
)

// A replayed is what of records may be an alarm. They may be from elsewhere, torn or made up.
type replayed struct {
	events   []audit.Event   // in order of time
	profiles map[string]bool // of the runs
	files    int
	skipped  int                // lines that are no events
	seen     map[[2]uint64]bool // files, by device and inode
	of       map[string]string  // the file of a run
	warn     func(format string, args ...any)
}

// read reads files, and what directories have of them.
func (r *replayed) read(paths []string) error {
	r.seen, r.profiles, r.of = map[[2]uint64]bool{}, map[string]bool{}, map[string]string{}
	for _, path := range paths {
		// What is named may be a link; what stands in a directory may not.
		root, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		err = filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
			switch {
			case err != nil && file != root:
				r.warn("%v: left out", err)
				return nil
			case err != nil || d.IsDir() || file != root && d.Name() != "events.jsonl":
				return err
			}
			switch err := r.file(file); {
			case err != nil && file == root:
				return err
			case err != nil:
				r.warn("%v: left out", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if r.files == 0 {
		return fmt.Errorf("%q: no records are there: name files called events.jsonl, or directories that have some", paths)
	}
	slices.SortStableFunc(r.events, func(a, b audit.Event) int { return a.Time.Compare(b.Time) })
	return nil
}

// file reads one, once.
func (r *replayed) file(name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // a FIFO would wait for a writer
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s: is no regular file, as records are", name)
	}
	id := [2]uint64{uint64(st.Dev), st.Ino}
	if r.seen[id] {
		return nil
	}
	r.seen[id] = true
	r.files++
	return r.lines(name, f)
}

// lines reads one event each, and leaves out what is none.
func (r *replayed) lines(name string, f io.Reader) error {
	in := bufio.NewScanner(f)
	in.Buffer(make([]byte, 1<<20), maxLine)
	bad, n := 0, 1
	for ; in.Scan(); n++ {
		if len(in.Bytes()) == 0 {
			continue
		}
		var e audit.Event
		err := json.Unmarshal(in.Bytes(), &e)
		if err == nil {
			err = e.Check()
		}
		if err != nil {
			if bad++; bad <= maxWarnings {
				r.warn("%s:%d: is no event, left out: %v", name, n, err)
			}
			continue
		}
		if first := r.of[e.Run]; first == "" {
			r.of[e.Run] = name
		} else if first != name {
			r.warn("%s: is of run %q as %s is, left out", name, printable(e.Run), first)
			break
		}
		r.add(&e)
	}
	if bad > maxWarnings {
		r.warn("%s: %d lines in all are no events", name, bad)
	}
	r.skipped += bad
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		r.skipped++
		r.warn("%s:%d: has more than %d bytes: the file is left out from here", name, n, maxLine)
		return nil
	}
	return in.Err()
}

func (r *replayed) add(e *audit.Event) {
	if !spike.Counts(e) && !sign.Looks(e) {
		return
	}
	if e.Start != nil {
		r.profiles[e.Start.Profile] = true
	}
	// A supervisor knows these; here they are what somebody wrote, and are shown.
	plain := []*string{&e.Run}
	switch {
	case e.Start != nil:
		plain = append(plain, &e.Start.Run, &e.Start.Image.Name, &e.Start.Image.Digest, &e.Start.Profile, &e.Start.Code.Name, &e.Start.Code.SHA256)
	case e.Scrub != nil:
		plain = append(plain, &e.Scrub.Credential)
	case e.Finding != nil:
		plain = append(plain, &e.Finding.What)
	case e.End != nil:
		plain = append(plain, &e.End.Status, &e.End.Reason)
	}
	for _, s := range plain {
		*s = printable(*s)
	}
	r.events = append(r.events, *e)
}
