package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// Journal is the record of one run while it is written: one JSON object a line. It is not
// safe for concurrent use.
type Journal struct {
	file *os.File
	sum  hash.Hash
	buf  []byte
	err  error // of a write: a record with a hole is not sealed
}

// CreateJournal makes the file at path, which must not exist.
func CreateJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &Journal{file: f, sum: sha256.New()}, nil
}

// Append writes events and hands them to the operating system.
func (j *Journal) Append(events ...Event) error {
	const chunk = 64 << 10 // bytes, from which on the buffer is written
	for i := range events {
		var err error
		if j.buf, err = events[i].AppendJSON(j.buf); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		j.buf = append(j.buf, '\n')
		if len(j.buf) >= chunk {
			if err := j.flush(); err != nil {
				return err
			}
		}
	}
	return j.flush()
}

func (j *Journal) flush() error {
	if j.err == nil {
		_, j.err = j.file.Write(j.buf)
	}
	j.sum.Write(j.buf)
	j.buf = j.buf[:0]
	if j.err != nil {
		return fmt.Errorf("journal: %w", j.err)
	}
	return nil
}

// Close syncs the record to disk and returns its seal. Nothing may follow.
func (j *Journal) Close() (seal string, err error) {
	if err := errors.Join(j.err, j.file.Sync(), j.file.Close()); err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	return "sha256:" + hex.EncodeToString(j.sum.Sum(nil)), nil
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
