package outside

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// ServeHTTP has a handler on port 80 and, for these names, with TLS on port 443.
func (w *World) ServeHTTP(t testing.TB, at netip.Addr, handler http.Handler, names ...string) {
	t.Helper()
	for _, port := range []uint16{80, 443} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(at, port).String())
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)} // clients break off
		serve := server.Serve
		if port == 443 {
			server.TLSConfig = w.TLS(t, names...)
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		done := make(chan struct{})
		go func() {
			_ = serve(l)
			close(done)
		}()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if server.Shutdown(ctx) != nil {
				server.Close()
			}
			<-done
		})
	}
}
