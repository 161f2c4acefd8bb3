package bench

import (
	"slices"
	"testing"
	"time"

	"proctor/testenv"
)

// BenchmarkRelay times TLS that passes through a run's gateway: a download, and small answers
// one after another, against socat as a plain forwarder (with its own blocks of 8 KiB and with
// 64 KiB) and against nothing in between. The client and the server do the TLS in every case.
func BenchmarkRelay(b *testing.B) {
	testenv.Root(b)
	testenv.LeakCheck(b)
	w := newWorld(b)
	w.serve(b, answerBytes)
	startSocat(b, socatAt)
	startSocat(b, socat64, "-b", "65536")
	r := w.newRun(b, policy())
	names := []string{"relay", "direct", "socat", "socat64k"}
	clients := map[string]*clientProcess{
		"relay":    newClient(b, clientSetup{Resolver: r.resolver, CA: w.ca}, r),
		"direct":   newClient(b, clientSetup{At: apiAt.String(), CA: w.ca}, nil),
		"socat":    newClient(b, clientSetup{At: socatAt.String(), CA: w.ca}, nil),
		"socat64k": newClient(b, clientSetup{At: socat64.String(), CA: w.ca}, nil),
	}
	const turns, asks = 7, 1000
	fetch := task{What: "fetch", Bytes: 256 << 20}
	ask := task{What: "ask", N: asks, Bytes: 100}
	b.Run("download", func(b *testing.B) {
		for b.Loop() {
			took := map[string][]time.Duration{}
			for i := range turns {
				for _, name := range turn(names, i) {
					took[name] = append(took[name], clients[name].do(b, fetch).Took)
				}
			}
			for _, name := range names {
				b.ReportMetric(float64(fetch.Bytes)/1e6/median(took[name]).Seconds(), name+"-MB/s")
			}
			for _, than := range names[1:] {
				b.ReportMetric(float64(median(took[than]))/float64(median(took["relay"])), "of-"+than)
			}
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("request", func(b *testing.B) {
		for b.Loop() {
			took := map[string][]time.Duration{}
			for i := range turns {
				for _, name := range turn(names, i) {
					took[name] = append(took[name], clients[name].do(b, ask).Times...)
				}
			}
			for _, name := range names {
				b.ReportMetric(ms(median(took[name])), name+"-p50-ms")
				b.ReportMetric(ms(p99(took[name])), name+"-p99-ms")
			}
			b.ReportMetric(ms(median(took["relay"])-median(took["direct"])), "added-p50-ms")
			b.ReportMetric(ms(p99(took["relay"])-p99(took["direct"])), "added-p99-ms")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// turn is the order of the i-th turn: forth and back, so that what drifts hits all alike.
func turn[T any](names []T, i int) []T {
	names = slices.Clone(names)
	if i%2 == 1 {
		slices.Reverse(names)
	}
	return names
}

func p99(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)*99/100]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
