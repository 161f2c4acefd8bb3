package api

import (
	"time"

	"proctor/audit"
	"proctor/supervisor"
)

// RunRequest is the body of POST /v1/runs. Input files come as descriptors, in the order
// of Inputs.
type RunRequest struct {
	Image    string                  `json:"image,omitempty"`
	Language string                  `json:"language"`
	Name     string                  `json:"name"` // of the code's file
	Code     []byte                  `json:"code"`
	Args     []audit.Text            `json:"args,omitempty"`
	Inputs   []audit.Text            `json:"inputs,omitempty"` // names at /inputs
	Limits   supervisor.LimitRequest `json:"limits"`
	Profile  string                  `json:"profile,omitempty"`
	// DenyNetwork and Allow leave less of what the profile grants.
	DenyNetwork bool     `json:"deny_network,omitempty"`
	Allow       []string `json:"allow,omitempty"`
}

// Message is one line of the answer to a run. Exactly one field is set.
type Message struct {
	Run     string         `json:"run,omitempty"` // it was let in, under this id
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
	Active     []string  `json:"active"`
	Images     []string  `json:"images"`
	Containerd string    `json:"containerd"`
	// Counters are of all runs since the supervisor began, for root.
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
