package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	requestFile = "request.json"
	verdictFile = "verdict.json"
	// verdictRoom is what is kept free for a run's verdict from its beginning: an abridged one
	// fits.
	verdictRoom = 64 << 10
	verdictTemp = ".verdict"
)

// keepRoom makes room for the verdict.
func (r *Record) keepRoom() error {
	f, err := os.OpenFile(r.Path(verdictTemp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	var room room
	return errors.Join(room.ensure(f, verdictRoom), f.Close())
}

// Discard removes the record of a run that did not begin.
func (r *Record) Discard() error { return os.RemoveAll(r.dir) }

// WriteVerdict replaces verdict.json, whole or not at all. Where the disk is full there is room
// for an abridged one: see [Verdict.Abridged].
func (r *Record) WriteVerdict(v *Verdict) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = r.replaceVerdict(append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	return nil
}

func (r *Record) replaceVerdict(data []byte) (err error) {
	temp := r.Path(verdictTemp)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// The room that was kept is asked for once more: a supervisor before this one may have
	// begun the record. What is there costs nothing.
	var room room
	if err := room.ensure(f, verdictRoom); err != nil && !IsFull(err) {
		return err
	} else if err == nil {
		if err := room.ensure(f, int64(len(data))); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, r.Path(verdictFile))
}

// Abridged is the verdict without the streams and lists, whose lengths alone are kept. It fits
// into the room that a record keeps for it.
func (v *Verdict) Abridged() *Verdict {
	a := *v
	a.Stdout, a.Stderr = Output{Total: v.Stdout.Total}, Output{Total: v.Stderr.Total}
	a.Inputs, a.Outputs, a.Skipped, a.Refused = nil, nil, nil, nil
	a.SkippedMore += len(v.Skipped)
	for _, c := range v.Refused {
		a.RefusedMore += c.Count
	}
	a.Egress.Allowed, a.Egress.Blocked = nil, nil
	for _, d := range v.Egress.Allowed {
		a.Egress.AllowedMore += d.Count
	}
	for _, d := range v.Egress.Blocked {
		a.Egress.BlockedMore += d.Count
	}
	return &a
}

// Caller reads who asked for the run, and nothing else; nil where no request was written.
func (r *Record) Caller() (*Caller, error) {
	q, err := readHead[Request](r.Path(requestFile), "image")
	if err != nil {
		return nil, err
	}
	return &q.Caller, nil
}

// VerdictHead reads the verdict without the streams, which may be most of it; nil without an
// error while the run has none.
func (r *Record) VerdictHead() (*Verdict, error) {
	v, err := readHead[Verdict](r.Path(verdictFile), "stdout")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

// readHead reads a JSON object from a file up to the key end, in the order in which it was
// written, and no further.
func readHead[T any](path, end string) (*T, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fields := map[string]json.RawMessage{}
	dec := json.NewDecoder(f)
	err = func() error {
		if t, err := dec.Token(); err != nil {
			return err
		} else if t != json.Delim('{') {
			return errors.New("no JSON object")
		}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if name == end {
				return nil
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				return err
			}
			fields[name] = value
		}
		_, err := dec.Token()
		return err
	}()
	if err == nil {
		var head []byte
		v := new(T)
		if head, err = json.Marshal(fields); err == nil {
			err = json.Unmarshal(head, v)
		}
		if err == nil {
			return v, nil
		}
	}
	return nil, fmt.Errorf("audit record: %s: %w", path, err)
}
