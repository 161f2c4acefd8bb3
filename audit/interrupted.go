package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/google/renameio/v2"
)

// FinishJournal closes the record at path, which its writer left open when it was killed,
// and calls f with each event it holds. Lines that are whole stay as they are. A last line
// that is not becomes a cut record, which holds its bytes, so that every line can be read.
// Then comes the given end, with the counts of what the record holds.
//
// A record that has its end already is left as it is, and complete if nothing of it is
// missing; no other is. Of a record that does not exist there is the end alone. The returned
// end is the one that the record has.
func FinishJournal(path, run string, end End, f func(*Event)) (End, Summary, error) {
	end, sum, err := finishJournal(path, run, end, f)
	if err != nil {
		return end, sum, fmt.Errorf("journal: %w", err)
	}
	return end, sum, nil
}

func finishJournal(path, run string, end End, f func(*Event)) (End, Summary, error) {
	old, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return end, Summary{}, err
	default:
		defer old.Close()
	}
	// The file is replaced whole, so that being killed here is no worse than there.
	pending, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600), beside(path))
	if err != nil {
		return end, Summary{}, err
	}
	defer pending.Cleanup() //nolint:errcheck // it is a temporary file, or replaced the record already
	hash := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(pending, hash), 64<<10)
	held := holdings{visit: f}
	var cut []byte
	if old != nil {
		if cut, err = held.copy(out, old); err != nil {
			return end, Summary{}, err
		}
	}
	ended := held.end != nil && len(cut) == 0
	if ended {
		end = *held.end
	} else {
		end.Counts = held.counts()
		if err := finishLines(out, run, cut, &end); err != nil {
			return end, Summary{}, err
		}
	}
	if err := out.Flush(); err != nil {
		return end, Summary{}, err
	}
	sum := Summary{
		Counts:   end.Counts,
		Complete: ended && end.Counts == held.counts() && end.Lost == 0 && end.Raced == 0,
		Seal:     sealOf(hash),
	}
	if ended && !held.mended {
		return end, sum, nil
	}
	return end, sum, pending.CloseAtomicallyReplace()
}

// finishLines writes what a record lacks after its last whole line.
func finishLines(w io.Writer, run string, cut []byte, end *End) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	now := time.Now().UTC()
	if len(cut) > 0 {
		if err := enc.Encode(Event{Run: run, Time: now, Kind: KindCut, Cut: &Cut{Line: Text(cut)}}); err != nil {
			return err
		}
	}
	return enc.Encode(Event{Run: run, Time: now, Kind: KindEnd, End: end})
}

// holdings is what a record turns out to hold while it is read.
type holdings struct {
	visit   func(*Event)
	highest uint64 // sequence number
	acts    uint64 // events that have one
	folded  uint64 // acts that these stand for beyond themselves
	raced   uint64 // of these, how many are in doubt
	end     *End   // when the last line is one
	mended  bool   // the last line lacked its newline alone
}

// copy copies the lines that are whole and returns what is left.
func (h *holdings) copy(w io.Writer, r io.Reader) (cut []byte, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(line) == 0 {
			return nil, nil
		}
		var e Event
		known := json.Unmarshal(line, &e) == nil
		last := err != nil
		if last && !known {
			return line, nil
		}
		// A line in the middle that is no event is not ours to mend: readers will say so.
		if _, err := w.Write(append(bytes.TrimSuffix(line, []byte("\n")), '\n')); err != nil {
			return nil, err
		}
		h.end = nil
		if known {
			h.add(&e)
		}
		if last {
			h.mended = true
			return nil, nil
		}
	}
}

func (h *holdings) add(e *Event) {
	if e.Seq > 0 {
		h.acts++
		h.highest = max(h.highest, e.Seq)
		if e.Repeat != nil {
			h.folded += e.Repeat.Count
		}
		if e.Doubtful() {
			h.raced++
		}
	}
	if e.Kind == KindEnd {
		h.end = e.End
	}
	h.visit(e)
}

func (h *holdings) counts() Counts {
	return Counts{Events: h.highest, Lost: h.highest - min(h.highest, h.acts), Folded: h.folded, Raced: h.raced}
}
