package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// refusals has the log say what callers asked for and did not get. A flood of it does not fill
// the log: what is left out is counted.
type refusals struct {
	log    *slog.Logger
	some   *rate.Limiter
	all    atomic.Uint64
	silent atomic.Uint64 // since the last line
}

func newRefusals(log *slog.Logger) *refusals {
	const perSecond, atOnce = 5, 50
	return &refusals{log: log, some: rate.NewLimiter(perSecond, atOnce)}
}

// clip keeps of what a caller wrote what is enough to know it by: it may be megabytes.
func clip(s string) string {
	const most = 600
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

// note is for an answer that is an error; c is nil where nobody knows who asked.
func (f *refusals) note(r *http.Request, c *peer, err error) {
	e := describe(err)
	if !e.Refused {
		return
	}
	f.all.Add(1)
	if !f.some.Allow() {
		f.silent.Add(1)
		return
	}
	attrs := []any{"request", clip(r.Method + " " + r.URL.Path), "why", clip(e.Message), "not_shown_before", f.silent.Swap(0)}
	if c != nil {
		attrs = append(attrs, "uid", c.UID, "pid", c.PID)
	}
	f.log.Info("request refused", attrs...)
}
