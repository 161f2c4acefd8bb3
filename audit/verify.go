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
	"io/fs"
	"strconv"
	"strings"
)

const (
	lineCap     = 64 << 20 // bytes: no event has more
	problemsCap = 20
)

// A Reading is what there turned out to be in a record that was read to its end.
type Reading struct {
	Seal     string   // of what was read
	Held     Counts   // of the events that were read
	End      *End     // nil where the last line is none
	Problems []string // at most 20 of them
	More     int      // problems beyond those
}

func (r *Reading) problem(format string, args ...any) {
	if len(r.Problems) == problemsCap {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// ReadRecord calls f with each event of a record. A line that is none is a problem, and
// does not keep the others from being read. The error is f's or the reader's.
func ReadRecord(r io.Reader, f func(*Event) error) (*Reading, error) {
	sum := sha256.New()
	in := bufio.NewReaderSize(io.TeeReader(r, sum), 64<<10)
	got := &Reading{}
	var ferr error
	held := holdings{visit: func(e *Event) {
		if ferr == nil {
			ferr = f(e)
		}
	}}
	for number := 1; ; number++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		var e Event
		jerr := json.Unmarshal(line, &e)
		if jerr == nil {
			jerr = e.Check()
		}
		if held.end != nil {
			got.problem("line %d comes after the end", number)
		}
		held.end = nil
		if jerr != nil {
			got.problem("line %d is no event: %v", number, jerr)
		} else {
			held.add(&e)
		}
		switch {
		case ferr != nil:
			return nil, ferr
		case errors.Is(err, io.EOF):
			got.problem("line %d is not finished", number)
		}
	}
	got.Seal, got.Held, got.End = sealOf(sum), held.counts(), held.end
	return got, nil
}

// readLine reads up to a newline, but not without bounds.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > lineCap {
			return nil, fmt.Errorf("has more than %d bytes, as no event has: the record is damaged", lineCap)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func sealOf(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// Agree adds to a record's problems what does not agree with how its run was judged.
func (r *Reading) Agree(v *Verdict) {
	if r.Seal != v.Audit.Seal {
		r.problem("it does not match its seal: it is %s, and was sealed as %s", r.Seal, v.Audit.Seal)
	}
	end := r.End
	if end == nil {
		r.problem("it has no end")
		return
	}
	if end.Status != string(v.Status) && v.Status != StatusError {
		r.problem("it ends with the status %q, and the verdict has %q", end.Status, v.Status)
	}
	if end.Counts != v.Audit.Counts {
		r.problem("it ends with %s, and the verdict has %s", end.Counts.text(), v.Audit.Counts.text())
	}
	// Of what is lost, some has no number: the gateway's.
	if held := r.Held.Events - r.Held.Lost; held > end.Events || held < end.Events-min(end.Events, end.Lost) {
		r.problem("it holds %d numbered events, and ends with %s", held, end.Counts.text())
	}
	if v.Audit.Complete && r.Held != end.Counts {
		r.problem("it holds %s, and its end says %s and that nothing is missing", r.Held.text(), end.Counts.text())
	}
}

// text is the counts as people are told them.
func (c Counts) text() string {
	s := fmt.Sprintf("events=%d lost=%d", c.Events, c.Lost)
	if c.Raced > 0 {
		s += fmt.Sprintf(" raced=%d", c.Raced)
	}
	return s
}

// A Source has the files of one run's record: a directory, or a supervisor.
type Source interface {
	Request() (*Request, error)
	Verdict() (*Verdict, error) // nil without an error while the run has none
	// Open opens code, events.jsonl or one of outputs, which is the caller's to close.
	Open(elem ...string) (io.ReadCloser, error)
}

// A Verification says whether a record is what was written.
type Verification struct {
	Run      string   `json:"run"`
	Intact   bool     `json:"intact"`   // no problem was found
	Complete bool     `json:"complete"` // and nothing is missing, as the verdict says
	Ended    bool     `json:"ended"`    // false: the run goes on, and there is nothing to compare with yet
	Seal     string   `json:"seal"`     // of the record as it is
	Outputs  int      `json:"outputs"`  // that are what they were
	Held     Counts   `json:"held"`     // of the events in the record
	Problems []string `json:"problems"`
}

// Verify reads everything of a record and compares it: events with their seal, numbers and end, code
// and outputs with their hashes. seal, unless it is empty, is one that was kept elsewhere, as nothing
// in a record holds against who can change all of it. The error says that something could not be
// read; what does not agree is a problem.
func Verify(src Source, seal string) (*Verification, error) {
	q, err := src.Request()
	if err != nil {
		return nil, err
	}
	v, err := src.Verdict()
	if err != nil {
		return nil, err
	}
	events, err := src.Open("events.jsonl")
	if err != nil {
		return nil, err
	}
	defer events.Close()
	r, err := ReadRecord(events, func(e *Event) error { return nil })
	if err != nil {
		return nil, err
	}
	got := &Verification{Run: q.Run, Ended: v != nil, Seal: r.Seal, Held: r.Held}
	if v != nil {
		r.Agree(v)
		if v.Run != q.Run {
			r.problem("the request is of run %s, and the verdict of run %s", q.Run, v.Run)
		}
	}
	if seal != "" && r.Seal != seal {
		r.problem("it is %s, and not %s, as is asked for", r.Seal, seal)
	}
	if err := r.compare(src, q.Code.SHA256, "code"); err != nil {
		return nil, err
	}
	if v != nil {
		for i, o := range v.Outputs {
			before := len(r.Problems) + r.More
			if err := r.compare(src, o.SHA256, "outputs", strconv.Itoa(i)); err != nil {
				return nil, err
			}
			if before == len(r.Problems)+r.More {
				got.Outputs++
			}
		}
	}
	if r.More > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("and %d more", r.More))
	}
	got.Problems = append([]string{}, r.Problems...)
	got.Intact = len(got.Problems) == 0
	got.Complete = got.Intact && v != nil && v.Audit.Complete
	return got, nil
}

// compare adds a problem where a file is not what its hash says.
func (r *Reading) compare(src Source, want string, elem ...string) error {
	f, err := src.Open(elem...)
	if errors.Is(err, fs.ErrNotExist) {
		r.problem("%s is missing", strings.Join(elem, "/"))
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if is := hex.EncodeToString(sum.Sum(nil)); is != want {
		r.problem("%s has sha256 %s, and had %s", strings.Join(elem, "/"), is, want)
	}
	return nil
}
