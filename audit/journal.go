package audit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// Journal is the record of one run while it is written: one JSON object a line. It is not
// safe for concurrent use.
//
// The file holds whole lines only, also when the disk is full, and room for one more is kept
// from the beginning, so that it can always be said how the run ended.
type Journal struct {
	file  *os.File
	sum   hash.Hash // of what the file holds
	buf   []byte
	lines int   // in buf
	size  int64 // of the file
	held  int   // lines in the file
	room  room
	err   error // of the first write that failed; nothing but the end is taken after it
	torn  error // the file may end within a line
}

// endRoom is what is kept free for a record's last line. An end that needs more, with the hashes
// of many inputs, is written without these when there is no more.
const endRoom = 16 << 10

// CreateJournal makes the file at path, which must not exist.
func CreateJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{file: f, sum: sha256.New(), room: room{step: 256 << 10}}
	if err := j.room.ensure(f, endRoom); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), f.Close(), os.Remove(path))
	}
	return j, nil
}

// Append writes events and hands them to the operating system. After an error, Held says how
// many of them are in the file, each of them whole; no more are taken.
func (j *Journal) Append(events ...Event) error {
	const chunk = 64 << 10 // bytes, from which on the buffer is written
	if j.err != nil {
		return fmt.Errorf("journal: %w", j.err)
	}
	for i := range events {
		if err := j.add(&events[i]); err != nil {
			return err
		}
		if len(j.buf) >= chunk {
			if err := j.flush(endRoom); err != nil {
				return err
			}
		}
	}
	return j.flush(endRoom)
}

// AppendEnd writes the last event, also of a record that took no more.
func (j *Journal) AppendEnd(e Event) error {
	err := j.appendEnd(e)
	if IsFull(err) && e.End != nil && len(e.End.Inputs) > 0 {
		end := *e.End
		end.Inputs, e.End = nil, &end
		err = j.appendEnd(e)
	}
	return err
}

func (j *Journal) appendEnd(e Event) error {
	if err := j.add(&e); err != nil {
		return err
	}
	return j.flush(0)
}

// Err is that of the first write that failed, after which no more events were taken.
func (j *Journal) Err() error { return j.err }

// Held is how many events the file holds.
func (j *Journal) Held() int { return j.held }

func (j *Journal) add(e *Event) error {
	before := len(j.buf)
	buf, err := e.AppendJSON(j.buf)
	if err != nil {
		j.buf = buf[:before]
		return fmt.Errorf("journal: %w", err)
	}
	j.buf = append(buf, '\n')
	j.lines++
	return nil
}

// flush writes the buffer, if after it so much room is left, or nothing of it.
func (j *Journal) flush(keep int64) error {
	p, lines := j.buf, j.lines
	j.buf, j.lines = j.buf[:0], 0
	err := j.torn
	if err == nil {
		err = j.room.ensure(j.file, j.size+int64(len(p))+keep)
	}
	if err == nil {
		if _, err = j.file.Write(p); err != nil {
			j.torn = j.file.Truncate(j.size)
		}
	}
	if err != nil {
		if j.err == nil {
			j.err = err
		}
		return fmt.Errorf("journal: %w", err)
	}
	j.size += int64(len(p))
	j.held += lines
	j.sum.Write(p)
	return nil
}

// Close syncs the record to disk and returns its seal. Nothing may follow. That not all was
// written is no error here: what is there is whole.
func (j *Journal) Close() (seal string, err error) {
	if j.torn == nil && j.room.got > 0 {
		_ = j.file.Truncate(j.size) // gives the room back that was kept
	}
	if err := errors.Join(j.torn, j.file.Sync(), j.file.Close()); err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	return sealOf(j.sum), nil
}

// ReadEvents calls f with each event of a journal, in order, until f returns an error. A
// last line that was not finished, as a crash leaves it, ends the reading with
// [io.ErrUnexpectedEOF].
func ReadEvents(r io.Reader, f func(Event) error) error {
	dec := json.NewDecoder(r)
	for {
		var e Event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
}
