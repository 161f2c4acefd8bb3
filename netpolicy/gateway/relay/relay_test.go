package relay

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	good := newWorld(t).opts
	for want, change := range map[string]func(*Options){
		"no policy":    func(o *Options) { o.Policy = nil },
		"no names":     func(o *Options) { o.Names = nil },
		"no dialer":    func(o *Options) { o.Dialer = nil },
		"no recorder":  func(o *Options) { o.Recorder = nil },
		"not negative": func(o *Options) { o.Limits.BytesUp = -1 },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; it should be refused with %q", err, want)
		}
	}
	o := good
	o.HelloTimeout, o.SpeakTimeout = 0, 0
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Limits.Connections != 100 || r.Limits.BytesUp != 100<<20 || r.Limits.BytesDown != 1<<30 || r.Limits.Idle != 5*time.Minute ||
		r.HelloTimeout != 10*time.Second || r.SpeakTimeout != 300*time.Millisecond || r.PacketIdle != time.Minute {
		t.Errorf("defaults %+v", r.Options)
	}
}

// A listener that fails ends Serve, and the connections that came from it.
func TestListenerFails(t *testing.T) {
	w := newWorld(t)
	l := new(broken)
	if err := w.relay.Serve(w.ctx, l); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	if !l.closed {
		t.Error("it is not closed")
	}
}

type broken struct{ closed bool }

func (l *broken) Accept() (net.Conn, error) { return nil, errors.New("broken") }
func (l *broken) Addr() net.Addr            { return &net.TCPAddr{} }
func (l *broken) Close() error              { l.closed = true; return nil }
