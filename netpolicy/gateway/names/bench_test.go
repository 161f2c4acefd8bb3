package names

import (
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"proctor/audit"
)

type nobody struct{}

func (nobody) Query(audit.Query) {}

// BenchmarkResolver answers over a real socket. The client shares the processor: it sends 32
// questions and reads 32 answers, without looking into them.
func BenchmarkResolver(b *testing.B) {
	for _, c := range []struct{ what, name string }{{"refused", "evil.example."}, {"granted", "api.example."}} {
		b.Run(c.what, func(b *testing.B) {
			s := serve(b, policy, UpstreamOptions{}, Options{Queries: 1 << 40, Recorder: nobody{}})
			s.opts.Upstream.cache.put(key{"api.example", IPv4}, Answer{Status: Found, Addresses: addrs("192.0.2.1"), TTL: time.Hour}, nil)
			conn, err := net.Dial("udp", s.addr.String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			q, buf := question(b, c.name, dns.TypeA, edns(1232, 0)), make([]byte, 1500)
			b.ReportAllocs()
			for b.Loop() {
				burst(b, conn, q, buf)
			}
			b.ReportMetric(float64(b.N)*32/b.Elapsed().Seconds(), "queries/s")
		})
	}
}

func burst(b *testing.B, conn net.Conn, q, buf []byte) {
	for range 32 {
		if _, err := conn.Write(q); err != nil {
			b.Fatal(err)
		}
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))
	for range 32 {
		if _, err := conn.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMessage is the same without sockets.
func BenchmarkMessage(b *testing.B) {
	for _, c := range []struct{ what, name string }{{"refused", "evil.example."}, {"granted", "api.example."}} {
		b.Run(c.what, func(b *testing.B) {
			r, _ := unserved(b, policy, Options{Queries: 1 << 40})
			r.opts.Recorder = nobody{}
			packet, buf := question(b, c.name, dns.TypeA, edns(1232, 0)), make([]byte, udpSize)
			b.ReportAllocs()
			for b.Loop() {
				q := r.receive(packet)
				rep, _ := r.judge(q)
				r.note(q, &rep, somewhere)
				if _, err := q.pack(&rep, q.size(), buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
