package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/supervisor"
	"proctor/supervisor/access"
	"proctor/supervisor/room"
)

// Group is the group whose members may use the socket, where it exists.
const Group = "proctor"

// Supervisor is what the server serves: a [supervisor.Supervisor].
type Supervisor interface {
	Run(context.Context, *supervisor.Request, supervisor.Observer) (*audit.Verdict, error)
	Kill(run string) error
	Active() []string
	Records() *audit.Store
	Feed() *audit.Feed
	Images() []supervisor.Image
	Since() time.Time
	Waiting() map[string]audit.Caller
	Counters() (map[string]uint64, error)
	Room() []room.State
}

// ServerOptions of NewServer. Every field but Callers, Alarms and Metrics is required.
type ServerOptions struct {
	Supervisor Supervisor
	Version    string
	Containerd func() string // how containerd is doing, for the status
	Callers    access.Rules  // what who calls may do
	Alarms     Alarms        // nil: there are none
	Metrics    http.Handler  // of GET /metrics; nil: there is none
	Logger     *slog.Logger
}

// Server serves the supervisor on a socket.
type Server struct {
	ServerOptions
	http     *http.Server
	stopping context.Context // ends with Shutdown
	stop     context.CancelFunc
	// bodyTimeout bounds how long a request may take to come in, once it has begun to.
	bodyTimeout time.Duration
	bodies      *budget
	asking      *budget
	connections *budget
	refusals    *refusals
	descriptors *budget
}

// NewServer does not listen yet: see Serve.
func NewServer(o ServerOptions) *Server {
	if o.Metrics == nil {
		o.Metrics = http.NotFoundHandler()
	}
	s := &Server{ServerOptions: o, bodyTimeout: time.Minute, bodies: newBudget(maxBodies, math.MaxInt64), asking: newBudget(maxAsking, math.MaxInt64),
		connections: newBudget(maxConnections, maxAllConnections), descriptors: newBudget(maxOpenInputs(), 2*maxOpenInputs()),
		refusals: newRefusals(o.Logger)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       10 * time.Second,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	return s
}

type connKey struct{}

// maxSocketPath is what a unix socket's address holds, but for the NUL.
const maxSocketPath = 107

// Vacant says why path cannot be listened on, as far as that can be known before.
func Vacant(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket %s: a unix socket's path has at most %d bytes, this one has %d: choose a shorter one with --socket", path, maxSocketPath, len(path))
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil // nothing, or nothing that can be seen: listening will say so
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("socket %s: something else is there: remove it, or choose another with --socket", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	// Any other answer than a refusal, such as a full queue, is somebody's.
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("socket %s: another supervisor serves it: stop that one, or choose another with --socket", path)
	}
	return nil
}

// Listen makes the socket, for root and the group of that name. One that is left of a
// supervisor that is gone is replaced, one that is served is not.
func Listen(path string) (*net.UnixListener, error) {
	if err := Vacant(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Nobody may connect before the mode is set.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := grant(path); err != nil {
		l.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	return l, nil
}

func grant(path string) error {
	g, err := user.LookupGroup(Group)
	if err != nil {
		return nil // no such group: root alone
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return err
	}
	if err := os.Chown(path, 0, gid); err != nil {
		return err
	}
	return os.Chmod(path, 0o660)
}

// Serve answers until Shutdown; it takes the listener over.
func (s *Server) Serve(l *net.UnixListener) error {
	err := s.http.Serve(descriptorListener{l, s.connections, s.descriptors, newClosers()})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops listening, ends live feeds, waits for the other calls under way until ctx
// ends, and then breaks them off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	return errors.Join(err, s.http.Close())
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a client that is gone is no one to tell
}

func replyError(w http.ResponseWriter, err error) {
	e := describe(err)
	w.Header().Set("Content-Type", "application/json")
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	w.WriteHeader(e.Code)
	_ = json.NewEncoder(w).Encode(Message{Error: e})
}

// describe finds the code and the fix for an error.
func describe(err error) *Error {
	var e *Error
	var refusal *supervisor.Refusal
	var busy *supervisor.BusyError
	var full *supervisor.FullError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &busy):
		return &Error{Code: http.StatusTooManyRequests, Refused: true, Message: busy.What, Fix: busy.Fix, RetryAfter: int(busy.Retry / time.Second)}
	case errors.As(err, &full):
		return &Error{Code: http.StatusInsufficientStorage, Refused: true, Message: "no new runs: " + full.Problem, Fix: full.Fix, RetryAfter: int(supervisor.RetryFull / time.Second)}
	case errors.As(err, &refusal):
		return &Error{Code: http.StatusUnprocessableEntity, Refused: true, Message: refusal.What, Fix: refusal.Fix}
	case errors.Is(err, audit.ErrNoRun):
		return notFound(err)
	case errors.Is(err, supervisor.ErrStopping):
		return &Error{Code: http.StatusServiceUnavailable, Message: err.Error(), Fix: "try again when it is back"}
	default:
		return &Error{Code: http.StatusInternalServerError, Message: err.Error()}
	}
}
