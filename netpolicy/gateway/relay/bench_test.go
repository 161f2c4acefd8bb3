package relay

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// forwarder is a plain one, as socat is one: reads and writes with a buffer of 8 KiB.
func forwarder(w *world, to string) string {
	return w.tcpServer(func(c *net.TCPConn) {
		c.SetDeadline(time.Time{})
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer up.Close()
		var wg sync.WaitGroup
		move := func(dst, src net.Conn) {
			// Hides splice.
			_, _ = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 8<<10))
			_ = closeWrite(dst)
		}
		wg.Go(func() { move(up, c) })
		move(c, up)
		wg.Wait()
	})
}

// paths are the ways to one server: without anything, through a plain forwarder, and through
// the relay as a named TLS connection.
func paths(b *testing.B, server func(*net.TCPConn)) (w *world, to map[string]string, hello []byte) {
	w = newWorld(b, func(w *world) { w.opts.Limits.BytesUp, w.opts.Limits.BytesDown = 1<<50, 1<<50 })
	hello = clientHello(&tls.Config{ServerName: "one.test"})
	addr := w.tcpServer(func(c *net.TCPConn) {
		c.SetDeadline(time.Time{})
		if _, err := io.ReadFull(c, make([]byte, len(hello))); err == nil {
			server(c)
		}
	})
	w.dialer.set("one.test:443", addr)
	return w, map[string]string{"direct": addr, "forwarder": forwarder(w, addr), "relay": w.at("198.18.0.1:443")}, hello
}

func BenchmarkPassThrough(b *testing.B) {
	const chunk = 256 << 10
	for _, path := range []string{"direct", "forwarder", "relay"} {
		b.Run(path, func(b *testing.B) {
			_, to, hello := paths(b, func(c *net.TCPConn) {
				buf := make([]byte, chunk)
				for {
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			})
			c, err := net.Dial("tcp", to[path])
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write(hello)
			buf := make([]byte, chunk)
			b.SetBytes(chunk)
			for b.Loop() {
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLatency(b *testing.B) {
	for _, path := range []string{"direct", "forwarder", "relay"} {
		b.Run(path, func(b *testing.B) {
			_, to, hello := paths(b, echo)
			c, err := net.Dial("tcp", to[path])
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write(hello)
			var took []time.Duration
			buf := make([]byte, 100)
			for b.Loop() {
				begin := time.Now()
				_, _ = c.Write(buf)
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		})
	}
}

// BenchmarkConnect is a connection with its ClientHello and one answer.
func BenchmarkConnect(b *testing.B) {
	for _, path := range []string{"direct", "forwarder", "relay"} {
		b.Run(path, func(b *testing.B) {
			_, to, hello := paths(b, func(c *net.TCPConn) { _, _ = c.Write([]byte{1}) })
			for b.Loop() {
				c, err := net.Dial("tcp", to[path])
				if err != nil {
					b.Fatal(err)
				}
				_, _ = c.Write(hello)
				_, _ = io.ReadFull(c, make([]byte, 1))
				c.Close()
			}
		})
	}
}
