package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"

	"proctor/audit"
)

// DefaultSocket is where a supervisor listens that was not told otherwise.
const DefaultSocket = "/run/proctor/proctor.sock"

// Client calls the supervisor on a socket. It holds nothing open between calls.
type Client struct {
	Socket string
}

// RunHandler is told how a run goes. Its functions are called in order, never at once.
type RunHandler struct {
	Waits    func(run string, before int) // nil: nobody wants to know
	Admitted func(run string)
	Stdout   func(p []byte) error
	Stderr   func(p []byte) error
}

// Run asks for a run and follows it to its verdict. files are the request's inputs, in
// order; they stay the caller's. When ctx ends, the run is ended.
func (c *Client) Run(ctx context.Context, q *RunRequest, files []*os.File, h RunHandler) (*audit.Verdict, error) {
	if len(files) > maxDescriptors {
		return nil, &Error{Code: http.StatusUnprocessableEntity, Refused: true, Message: fmt.Sprintf("%d inputs: at most %d", len(files), maxDescriptors), Fix: "pack them into one archive"}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/runs", bytes.NewReader(body), files)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var m Message
		if err := dec.Decode(&m); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("the supervisor went away during the run (%w): what it recorded is in `proctor audit list`", err)
		}
		var herr error
		switch {
		case m.Verdict != nil:
			return m.Verdict, nil
		case m.Error != nil:
			return nil, m.Error
		case m.Waits != nil:
			if h.Waits != nil {
				h.Waits(m.Run, *m.Waits)
			}
		case m.Run != "":
			h.Admitted(m.Run)
		case m.Stdout != nil:
			herr = h.Stdout(m.Stdout)
		case m.Stderr != nil:
			herr = h.Stderr(m.Stderr)
		}
		if herr != nil {
			return nil, herr
		}
	}
}

// Status asks how the supervisor is doing.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[*Status](ctx, c, "/v1/status")
}

// Images lists what runs may use.
func (c *Client) Images(ctx context.Context) ([]ImageInfo, error) {
	return get[[]ImageInfo](ctx, c, "/v1/images")
}

// Runs lists the newest runs that the caller may see, at most limit.
func (c *Client) Runs(ctx context.Context, limit int) ([]RunInfo, error) {
	return get[[]RunInfo](ctx, c, "/v1/runs?limit="+strconv.Itoa(limit))
}

// Show returns one run.
func (c *Client) Show(ctx context.Context, run string) (*RunInfo, error) {
	if err := audit.CheckRun(run); err != nil {
		return nil, notFound(err)
	}
	return get[*RunInfo](ctx, c, "/v1/runs/"+run)
}

// Kill ends a run.
func (c *Client) Kill(ctx context.Context, run string) error {
	resp, err := c.ofRun(ctx, http.MethodPost, run, "/kill")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Code copies a run's code to w.
func (c *Client) Code(ctx context.Context, run string, w io.Writer) error {
	return c.copy(ctx, run, w, "code")
}

// Output copies the nth of a run's outputs to w.
func (c *Client) Output(ctx context.Context, run string, n int, w io.Writer) error {
	return c.copy(ctx, run, w, "outputs", strconv.Itoa(n))
}

// Record copies a run's record to w as it is kept, which is what its seal is of.
func (c *Client) Record(ctx context.Context, run string, w io.Writer) error {
	return c.copy(ctx, run, w, "events.jsonl")
}

// Events calls f with each event of a run's record, in order.
func (c *Client) Events(ctx context.Context, run string, f func(audit.Event) error) error {
	r, err := c.Open(ctx, run, "events.jsonl")
	if err != nil {
		return err
	}
	defer r.Close()
	return audit.ReadEvents(r, f)
}

// Open opens a file of a run's record, which is named as in [audit.Record]: code, events.jsonl, or
// one of outputs. It is the caller's to close.
func (c *Client) Open(ctx context.Context, run string, elem ...string) (io.ReadCloser, error) {
	what := "/" + strings.TrimSuffix(strings.Join(elem, "/"), ".jsonl")
	resp, err := c.ofRun(ctx, http.MethodGet, run, what)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Tail calls f with every event of every run as it happens, until ctx ends, f gives an
// error, or the supervisor goes. started is called once nothing more can be missed.
func (c *Client) Tail(ctx context.Context, started func(), f func(audit.Event) error) error {
	resp, err := c.do(ctx, http.MethodGet, "/v1/events", nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	started()
	return audit.ReadEvents(resp.Body, f)
}

func (c *Client) copy(ctx context.Context, run string, w io.Writer, elem ...string) error {
	r, err := c.Open(ctx, run, elem...)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

// ofRun calls something of a run. What is no run's id is refused here: in a path it could
// mean something else.
func (c *Client) ofRun(ctx context.Context, method, run, what string) (*http.Response, error) {
	if err := audit.CheckRun(run); err != nil {
		return nil, notFound(err)
	}
	return c.do(ctx, method, "/v1/runs/"+run+what, nil, nil)
}

func notFound(err error) *Error {
	return &Error{Code: http.StatusNotFound, Refused: true, Message: err.Error()}
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var v T
	resp, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("answer of the supervisor: %w", err)
	}
	return v, nil
}

// do makes one call on a connection of its own, which closing the body closes.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader, files []*os.File) (*http.Response, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", c.Socket)
			if err != nil {
				return nil, err
			}
			return &sendingConn{UnixConn: conn.(*net.UnixConn), files: files}, nil
		},
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://proctor"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var m Message
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || m.Error == nil {
		return nil, fmt.Errorf("the supervisor answered %s: is something else listening at %s?", resp.Status, c.Socket)
	}
	m.Error.Code = resp.StatusCode
	return nil, m.Error
}

// ErrUnreachable is a supervisor that could not be called.
var ErrUnreachable = errors.New("the supervisor cannot be reached")

func (c *Client) explain(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.As(err, &op) && op.Op != "dial":
		return fmt.Errorf("%w: it broke the call off: %w", ErrUnreachable, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: none is running at %s: start it with `sudo proctor serve`, or name its socket with --socket or PROCTOR_SOCKET", ErrUnreachable, c.Socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: you may not use %s: use sudo, or have the operator add you to the group %s", ErrUnreachable, c.Socket, Group)
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w: %s is no path of a socket: it may have at most 107 bytes", ErrUnreachable, c.Socket)
	default:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
}
