package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"proctor/audit"
	"proctor/supervisor"
)

// maxBody bounds a request's JSON: the largest code in base64, and as much again.
const maxBody = 32 << 20

// handler answers a request, or returns why it does not.
type handler func(http.ResponseWriter, *http.Request, *peer) error

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of the connection's last request
			c, err := s.peer(r)
			if err == nil {
				err = f(w, r, c)
			}
			if err != nil {
				s.refusals.note(r, c, err)
				replyError(w, err)
			}
		})
	}
	handle("POST /v1/runs", s.run)
	handle("GET /v1/runs", s.few(s.list))
	handle("GET /v1/runs/{run}", s.few(s.show))
	handle("GET /v1/runs/{run}/code", s.code)
	handle("GET /v1/runs/{run}/events", s.events)
	handle("GET /v1/runs/{run}/outputs/{n}", s.output)
	handle("POST /v1/runs/{run}/kill", s.kill)
	handle("GET /v1/events", s.tail)
	handle("GET /v1/images", s.images)
	handle("GET /v1/status", s.few(s.status))
	handle("GET /metrics", s.few(s.metrics))
	if s.Alarms != nil {
		s.alertRoutes(handle)
	}
	return mux
}

// lines answers with one JSON object a line, from several goroutines.
type lines struct {
	mu  sync.Mutex
	w   http.ResponseWriter
	enc *json.Encoder
	out *http.ResponseController
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	l := &lines{w: w, enc: json.NewEncoder(w), out: http.NewResponseController(w)}
	l.enc.SetEscapeHTML(false)
	return l
}

func (l *lines) send(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enc.Encode(v); err != nil {
		return err
	}
	return l.out.Flush()
}

// The supervisor's observer.
func (l *lines) Waits(run string, before int) {
	_ = l.send(Message{Run: run, Waits: &before})
}
func (l *lines) Admitted(run string)   { _ = l.send(Message{Run: run}) }
func (l *lines) Stdout(p []byte) error { return l.send(Message{Stdout: p}) }
func (l *lines) Stderr(p []byte) error { return l.send(Message{Stderr: p}) }

func (s *Server) run(w http.ResponseWriter, r *http.Request, c *peer) error {
	conn := r.Context().Value(connKey{}).(*descriptorConn)
	give, err := s.room(r, c)
	if err != nil {
		s.skipBody(w, r)
		return err
	}
	defer give()
	var q RunRequest
	err = s.readBody(w, r, &q)
	// The descriptors came with the request's first byte: they are all here now.
	files := conn.take()
	req := &supervisor.Request{}
	defer func() {
		closeAll(files[len(req.Inputs):])
		for _, in := range req.Inputs {
			in.File.Close()
		}
		conn.closed()
	}()
	if conn.wasCrowded() {
		return &Error{
			Code: http.StatusTooManyRequests, Refused: true, RetryAfter: 5,
			Message: fmt.Sprintf("%d inputs: all of the caller's that are open may be %d together", len(q.Inputs), s.descriptors.most), Fix: "try again when some runs have ended",
		}
	}
	if err != nil {
		return &Error{Code: http.StatusBadRequest, Refused: true, Message: "request: " + err.Error(), Fix: "use a client of the supervisor's version, or see the documentation of the API"}
	}
	if len(files) != len(q.Inputs) {
		return &Error{Code: http.StatusBadRequest, Refused: true, Message: fmt.Sprintf("%d inputs named, %d descriptors passed", len(q.Inputs), len(files)), Fix: "pass one for each, with the request's first byte"}
	}
	*req = supervisor.Request{
		Caller: c.Caller, Groups: c.groups, Access: c.Access, Agent: string(q.Agent), Conversation: string(q.Conversation), Image: q.Image, Language: q.Language, Name: q.Name, Code: q.Code, Limits: q.Limits,
		Profile: q.Profile, DenyNetwork: q.DenyNetwork, Allow: q.Allow,
	}
	for _, a := range q.Args {
		req.Args = append(req.Args, string(a))
	}
	for i, name := range q.Inputs {
		in, err := supervisor.NewInput(string(name), files[i])
		if err != nil {
			return err
		}
		req.Inputs = append(req.Inputs, in)
	}

	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	stop := context.AfterFunc(r.Context(), func() { cancel(errClientGone) })
	defer stop()
	l := newLines(w)
	v, err := s.Supervisor.Run(ctx, req, l)
	if err != nil {
		return err
	}
	return ignoreGone(l.send(Message{Verdict: v}))
}

// readBody reads one JSON object and nothing after it. The body is read to its end also
// because only then a client that goes away is noticed.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, into any) error {
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Now().Add(s.bodyTimeout)); err != nil {
		return err
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return conn.SetReadDeadline(time.Time{})
}

// skipBody reads what is not taken, and keeps none of it: a client that is still sending when
// the connection ends is told of that, and not why.
func (s *Server) skipBody(w http.ResponseWriter, r *http.Request) {
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTimeout)); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
}

// errClientGone is the cause of a run whose caller went away.
var errClientGone = errors.New("its caller went away")

// ignoreGone: a client that hung up while it was being answered is no error of ours, and
// there is nobody to tell.
func ignoreGone(error) error { return nil }

// mayRead says whether a caller may see a run.
func mayRead(c *peer, q *audit.Request) bool { return c.Role.Sees() || c.owns(q) }

// record finds a run that the caller may see. One that it may not see does not exist.
func (s *Server) record(r *http.Request, c *peer) (*audit.Record, *audit.Request, error) {
	rec, err := s.Supervisor.Records().Open(r.PathValue("run"))
	if err != nil {
		return nil, nil, err
	}
	q, err := rec.Request()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	if !mayRead(c, q) {
		return nil, nil, fmt.Errorf("run %s: %w: see `proctor audit list`", rec.Run, audit.ErrNoRun)
	}
	return rec, q, nil
}

func (s *Server) info(rec *audit.Record, q *audit.Request) (RunInfo, error) {
	v, err := rec.Verdict()
	return s.describeRun(rec, q, v), err
}

func (s *Server) describeRun(rec *audit.Record, q *audit.Request, v *audit.Verdict) RunInfo {
	return RunInfo{
		Run: rec.Run, Request: q, Verdict: v,
		Active: v == nil && slices.Contains(s.Supervisor.Active(), rec.Run),
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, c *peer) error {
	limit := 50
	if t := r.URL.Query().Get("limit"); t != "" {
		n, err := strconv.Atoi(t)
		if err != nil || n < 1 {
			return &Error{Code: http.StatusBadRequest, Refused: true, Message: fmt.Sprintf("limit %.40q: not a positive number", t), Fix: "give one"}
		}
		limit = n
	}
	runs, err := s.Supervisor.Records().Runs()
	if err != nil {
		return err
	}
	list := []RunInfo{}
	for _, id := range runs {
		if len(list) == limit {
			break
		}
		if err := r.Context().Err(); err != nil {
			return err
		}
		rec, err := s.Supervisor.Records().Open(id)
		if err != nil {
			continue
		}
		// Of runs that are not shown, no more is read than whose they are; of those that are, not
		// what they wrote. One that cannot be read is listed all the same: somebody should look.
		if !c.Role.Sees() {
			if caller, err := rec.Caller(); err != nil || caller.UID != c.UID {
				continue
			}
		}
		q, _ := rec.Request()
		v, _ := rec.VerdictHead()
		list = append(list, s.describeRun(rec, q, v))
	}
	reply(w, list)
	return nil
}

func (s *Server) show(w http.ResponseWriter, r *http.Request, c *peer) error {
	rec, q, err := s.record(r, c)
	if err != nil {
		return err
	}
	info, err := s.info(rec, q)
	if err != nil {
		return err
	}
	reply(w, info)
	return nil
}

func (s *Server) code(w http.ResponseWriter, r *http.Request, c *peer) error {
	return s.file(w, r, c, "code")
}

func (s *Server) events(w http.ResponseWriter, r *http.Request, c *peer) error {
	return s.file(w, r, c, "events.jsonl")
}

func (s *Server) output(w http.ResponseWriter, r *http.Request, c *peer) error {
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 31)
	if err != nil {
		return &Error{Code: http.StatusNotFound, Refused: true, Message: fmt.Sprintf("output %.40q: not a number", r.PathValue("n"))}
	}
	return s.file(w, r, c, "outputs", strconv.FormatUint(n, 10))
}

func (s *Server) file(w http.ResponseWriter, r *http.Request, c *peer, elem ...string) error {
	rec, _, err := s.record(r, c)
	if err != nil {
		return err
	}
	// Asked before the file is opened: what is not active then does not grow any more.
	active := slices.Contains(s.Supervisor.Active(), rec.Run)
	f, err := rec.Open(elem...)
	if errors.Is(err, os.ErrNotExist) {
		return &Error{Code: http.StatusNotFound, Refused: true, Message: fmt.Sprintf("run %s has no such file", rec.Run)}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	var to io.Writer = w
	if active && elem[0] == "events.jsonl" {
		to = &lineWriter{w: w}
	}
	_, _ = io.Copy(to, f)
	return nil
}

// lineWriter passes on whole lines: a record that is being written may end within one.
type lineWriter struct {
	w    io.Writer
	rest []byte
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	if _, err := l.w.Write(l.rest[:end]); err != nil {
		return 0, err
	}
	l.rest = append(l.rest[:0], l.rest[end:]...)
	return len(p), nil
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request, c *peer) error {
	// One that waits has no record.
	run := r.PathValue("run")
	if caller, waits := s.Supervisor.Waiting()[run]; waits && (c.Role.Sees() || caller.UID == c.UID) {
		return s.killOf(w, run, c, caller.UID == c.UID)
	}
	rec, q, err := s.record(r, c)
	if err != nil {
		return err
	}
	return s.killOf(w, rec.Run, c, c.owns(q))
}

func (s *Server) killOf(w http.ResponseWriter, run string, c *peer, own bool) error {
	if !c.Role.Operates() && !own {
		return forbidden("run " + run + " is another caller's, and ending it is for operators")
	}
	if err := s.Supervisor.Kill(run); err != nil {
		return err
	}
	reply(w, struct{}{})
	return nil
}

func forbidden(message string) *Error {
	return &Error{Code: http.StatusForbidden, Refused: true, Message: message, Fix: "use sudo, or have the operator give you the role under callers in proctor.yaml"}
}

func (s *Server) tail(w http.ResponseWriter, r *http.Request, c *peer) error {
	if !c.Role.Sees() {
		return forbidden("the live feed shows all callers' runs, which is for auditors")
	}
	sub := s.Supervisor.Feed().Subscribe("")
	defer sub.Close()
	l := newLines(w)
	w.WriteHeader(http.StatusOK)
	if err := l.out.Flush(); err != nil {
		return ignoreGone(err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	for {
		batch, err := sub.Next(ctx)
		if err != nil {
			return ignoreGone(err)
		}
		for i := range batch {
			if err := l.enc.Encode(&batch[i]); err != nil {
				return ignoreGone(err)
			}
		}
		if err := l.out.Flush(); err != nil {
			return ignoreGone(err)
		}
	}
}

func (s *Server) images(w http.ResponseWriter, _ *http.Request, _ *peer) error {
	list := []ImageInfo{}
	for _, img := range s.Supervisor.Images() {
		list = append(list, ImageInfo{
			Name: img.Name, Digest: img.Digest.String(), Description: img.Description,
			Languages: img.Languages(), Packages: img.Packages, RootBytes: img.RootBytes, Built: img.Built,
		})
	}
	reply(w, list)
	return nil
}

// metrics are what Prometheus reads, for those who may see all callers' runs.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, c *peer) error {
	if !c.Role.Sees() {
		return forbidden("metrics are about all callers' runs, which is for auditors")
	}
	s.Metrics.ServeHTTP(w, r)
	return nil
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request, c *peer) error {
	st := Status{
		Version: s.Version, PID: os.Getpid(), Since: s.Supervisor.Since(),
		Active: []string{}, Waiting: []string{}, Images: []string{}, Containerd: s.Containerd(),
		Room: s.Supervisor.Room(),
	}
	if c.Role.Sees() {
		st.Active = s.Supervisor.Active()
		st.Waiting = slices.AppendSeq(st.Waiting, maps.Keys(s.Supervisor.Waiting()))
		slices.Sort(st.Waiting)
		var err error
		if st.Counters, err = s.Supervisor.Counters(); err != nil {
			return err
		}
		st.Counters["requests_refused"] = s.refusals.all.Load()
		if s.Alarms != nil {
			st.Counters["alarms"] = 0
			for _, n := range s.Alarms.Book().Raised() {
				st.Counters["alarms"] += n
			}
		}
	}
	for _, img := range s.Supervisor.Images() {
		st.Images = append(st.Images, img.Name)
	}
	reply(w, st)
	return nil
}
