package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"proctor/audit"
	"proctor/supervisor"
	"proctor/supervisor/room"
)

// RunRequest is the body of POST /v1/runs. Input files come as descriptors, in the order
// of Inputs.
type RunRequest struct {
	Image    string                  `json:"image,omitempty"`
	Language string                  `json:"language"`
	Name     string                  `json:"name"` // of the code's file
	Code     []byte                  `json:"code"`
	Args     list[audit.Text]        `json:"args,omitempty"`
	Inputs   list[audit.Text]        `json:"inputs,omitempty"` // names at /inputs
	Limits   supervisor.LimitRequest `json:"limits"`
	Profile  string                  `json:"profile,omitempty"`
	// DenyNetwork and Allow leave less of what the profile grants.
	DenyNetwork bool         `json:"deny_network,omitempty"`
	Allow       list[string] `json:"allow,omitempty"`
	// Agent and Conversation say whose work this is. They are recorded, and decide nothing.
	Agent        audit.Text `json:"agent,omitempty"`
	Conversation audit.Text `json:"conversation,omitempty"`
}

// A list is read from an array up to maxList elements: empty strings take a tenth in JSON of what
// they take in memory.
type list[T any] []T

// maxList is more than any list of a request may have.
const maxList = 8192

// UnmarshalJSON implements [json.Unmarshaler].
func (l *list[T]) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t == nil {
		return err
	} else if t != json.Delim('[') {
		return errors.New("a list is not an array")
	}
	*l = nil
	for dec.More() {
		if len(*l) == maxList {
			return fmt.Errorf("a list has more than %d elements", maxList)
		}
		var one T
		if err := dec.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}

// Message is one line of the answer to a run. Exactly one field is set, but for Run beside Waits.
type Message struct {
	Waits   *int           `json:"waits,omitempty"` // it is not let in yet: at most so many are before it
	Run     string         `json:"run,omitempty"`   // it was let in, under this id, or waits
	Stdout  []byte         `json:"stdout,omitempty"`
	Stderr  []byte         `json:"stderr,omitempty"`
	Verdict *audit.Verdict `json:"verdict,omitempty"`
	Error   *Error         `json:"error,omitempty"`
}

// Error is what went wrong with a call.
type Error struct {
	Code    int    `json:"-"`                 // HTTP's
	Refused bool   `json:"refused,omitempty"` // the request broke a rule; nothing was done
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// RetryAfter is after how many seconds the same call may do better; 0: it will not.
	RetryAfter int `json:"retry_after,omitempty"`
}

func (e *Error) Error() string {
	if e.Fix == "" {
		return e.Message
	}
	return e.Message + ": " + e.Fix
}

// RunInfo is one line of the list of runs, and the answer about one run.
type RunInfo struct {
	Run     string         `json:"run"`
	Active  bool           `json:"active"`
	Request *audit.Request `json:"request,omitempty"` // nil when it never started
	Verdict *audit.Verdict `json:"verdict,omitempty"` // nil while it runs
}

// Status is how the supervisor is doing.
type Status struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Since      time.Time `json:"since"`
	Active     []string  `json:"active"`  // for auditors and operators
	Waiting    []string  `json:"waiting"` // runs that are not let in yet, likewise
	Images     []string  `json:"images"`
	Containerd string    `json:"containerd"`
	// Room is what is free on disk, and why there are no new runs where there is too little.
	Room []room.State `json:"room"`
	// Counters are of all runs since the supervisor began, for auditors and operators.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// ImageInfo is one image that runs may use.
type ImageInfo struct {
	Name        string            `json:"name"`
	Digest      string            `json:"digest"`
	Description string            `json:"description"`
	Languages   []string          `json:"languages"`
	Packages    map[string]string `json:"packages"`
	RootBytes   int64             `json:"root_bytes"`
	Built       time.Time         `json:"built"`
}
