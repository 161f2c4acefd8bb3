package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Output is what was kept of a stream: its head and, where it was longer than the limit,
// its tail.
type Output struct {
	Head  []byte
	Tail  []byte
	Total int64 // bytes the program wrote
}

// Bytes is what was kept, in order.
func (o Output) Bytes() []byte { return append(o.Head[:len(o.Head):len(o.Head)], o.Tail...) }

// Truncated is the number of bytes between head and tail that were not kept.
func (o Output) Truncated() int64 { return o.Total - int64(len(o.Head)+len(o.Tail)) }

// verdictJSON adds the streams to a verdict's own fields.
type verdictJSON struct {
	verdictFields
	Stdout          string `json:"stdout"`
	StdoutTruncated int64  `json:"stdout_truncated_bytes"`
	StdoutHead      int    `json:"stdout_head_bytes,omitempty"`
	StdoutBase64    []byte `json:"stdout_base64,omitempty"`
	Stderr          string `json:"stderr"`
	StderrTruncated int64  `json:"stderr_truncated_bytes"`
	StderrHead      int    `json:"stderr_head_bytes,omitempty"`
	StderrBase64    []byte `json:"stderr_base64,omitempty"`
}

type verdictFields Verdict

// MarshalJSON writes the streams as text: what was kept, with *_head_bytes saying where in
// it something is missing, if anything is. Where text loses something (bytes that are not
// UTF-8 become U+FFFD), what was kept stands in base64 as well; the count is of these bytes.
func (v Verdict) MarshalJSON() ([]byte, error) {
	j := verdictJSON{verdictFields: verdictFields(v)}
	if j.Outputs == nil {
		j.Outputs = []OutputFile{}
	}
	if j.Egress.Allowed == nil {
		j.Egress.Allowed = []Destination{}
	}
	if j.Egress.Blocked == nil {
		j.Egress.Blocked = []Destination{}
	}
	j.Stdout, j.StdoutTruncated, j.StdoutHead, j.StdoutBase64 = streamText(v.Stdout)
	j.Stderr, j.StderrTruncated, j.StderrHead, j.StderrBase64 = streamText(v.Stderr)
	return json.Marshal(j)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (v *Verdict) UnmarshalJSON(data []byte) error {
	var j verdictJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	var oerr, eerr error
	j.verdictFields.Stdout, oerr = streamOutput(j.Stdout, j.StdoutTruncated, j.StdoutHead, j.StdoutBase64)
	j.verdictFields.Stderr, eerr = streamOutput(j.Stderr, j.StderrTruncated, j.StderrHead, j.StderrBase64)
	if err := errors.Join(oerr, eerr); err != nil {
		return fmt.Errorf("verdict: %w", err)
	}
	*v = Verdict(j.verdictFields)
	return nil
}

func streamText(o Output) (text string, truncated int64, head int, raw []byte) {
	kept := o.Bytes()
	truncated = o.Truncated()
	if truncated > 0 {
		head = len(o.Head)
	}
	if !utf8.Valid(kept) {
		raw = kept
	}
	return string(kept), truncated, head, raw // encoding/json replaces what is invalid
}

func streamOutput(text string, truncated int64, head int, raw []byte) (Output, error) {
	if raw == nil {
		raw = []byte(text)
	}
	if truncated < 0 || head < 0 || head > len(raw) || truncated > math.MaxInt64-int64(len(raw)) {
		return Output{}, fmt.Errorf("a stream of %d bytes with %d missing after %d", len(raw), truncated, head)
	}
	o := Output{Head: raw, Total: int64(len(raw)) + truncated}
	if truncated > 0 {
		o.Head, o.Tail = raw[:head:head], raw[head:]
	}
	return o, nil
}
