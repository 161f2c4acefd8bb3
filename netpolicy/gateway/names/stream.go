package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ServeStream answers over the connections that l accepts until ctx ends, which is no error, or
// l fails. It closes l and the connections and waits for what it started.
//
// A stream has its questions answered in turn. One that brings none is recorded as well, so
// that each connection has a record.
func (r *Resolver) ServeStream(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()

	for failures := 0; ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil:
			if failures++; failures > maxFailures || errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("resolver: %w", err)
			}
			select { // it may have no descriptors left for a while
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		failures = 0
		select {
		case r.slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-r.slots }()
				r.stream(ctx, conn)
			})
		default:
			conn.Close()
			r.refuse(fmt.Sprintf("the resolver has at most %d streams at a time", r.opts.Streams), ends(conn))
		}
	}
}

// ends are those of an accepted connection.
func ends(conn net.Conn) source {
	addr := func(a net.Addr) netip.AddrPort {
		if t, ok := a.(*net.TCPAddr); ok {
			p := t.AddrPort()
			return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
		}
		return netip.AddrPort{}
	}
	return source{protocol: "tcp", server: addr(conn.LocalAddr()), client: addr(conn.RemoteAddr())}
}

// refuse records what is not answered.
func (r *Resolver) refuse(rule string, src source) {
	r.note(&query{over: r.count()}, &reply{mute: true, rule: rule}, src)
}

// stream serves one connection and closes it.
func (r *Resolver) stream(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	src := ends(conn)
	for n := 0; ; n++ {
		conn.SetDeadline(time.Now().Add(r.opts.Idle))
		if ctx.Err() != nil { // its deadline may have been overwritten
			return
		}
		packet, err := readFrame(conn, maxMessage)
		if errors.Is(err, errTooLong) {
			r.refuse(fmt.Sprintf("a question has at most %d bytes", maxMessage), src)
			return
		}
		if err != nil {
			if n == 0 && ctx.Err() == nil {
				r.refuse("a stream without a question", src)
			}
			return
		}
		q := r.receive(packet)
		rep, done := r.judge(q)
		if !done {
			rep = r.lookup(ctx, q, rep)
		}
		r.note(q, &rep, src)
		if rep.mute {
			return
		}
		out, err := q.pack(&rep, 1<<16-1, nil)
		if err != nil {
			return
		}
		// The wait for the host's resolvers is not the client's to pay for.
		conn.SetDeadline(time.Now().Add(r.opts.Idle))
		if ctx.Err() != nil {
			return
		}
		if _, err := conn.Write(frame(out)); err != nil {
			return
		}
		if q.over > 0 {
			return
		}
	}
}
