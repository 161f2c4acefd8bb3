package audit

import (
	"bufio"
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
	buf  *bufio.Writer
	enc  *json.Encoder
	sum  hash.Hash
}

// CreateJournal makes the file at path, which must not exist.
func CreateJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{file: f, sum: sha256.New()}
	j.buf = bufio.NewWriterSize(io.MultiWriter(f, j.sum), 64<<10)
	j.enc = json.NewEncoder(j.buf)
	j.enc.SetEscapeHTML(false)
	return j, nil
}

// Append writes events and hands them to the operating system.
func (j *Journal) Append(events ...Event) error {
	for i := range events {
		if err := j.enc.Encode(&events[i]); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if err := j.buf.Flush(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Close syncs the record to disk and returns its seal. Nothing may follow.
func (j *Journal) Close() (seal string, err error) {
	err = errors.Join(j.buf.Flush(), j.file.Sync(), j.file.Close())
	if err != nil {
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
