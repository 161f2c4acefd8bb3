package credential

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkRequests is requests through the gateway and, for comparison, of the same upstream
// without it: 16 at a time on connections that are kept.
func BenchmarkRequests(b *testing.B) {
	body := allBytes(2 << 10)
	for _, down := range []bool{false, true} {
		for _, up := range []bool{false, true} {
			for _, direct := range []bool{true, false} {
				if direct && down != up {
					continue
				}
				b.Run(fmt.Sprintf("h2=%v,h2up=%v,direct=%v", down, up, direct), func(b *testing.B) {
					r := simple(b, up, func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }, nil)
					c := r.client(down)
					c.Transport.(*http.Transport).MaxIdleConnsPerHost = 100
					if direct {
						c.Transport.(*http.Transport).TLSClientConfig.RootCAs = r.term.options.Roots
						r.listeners[hostA] = r.dialer.to[hostA+":443"]
					}
					measure(b, c, "https://"+hostA+"/")
				})
			}
		}
	}
}

func measure(b *testing.B, c *http.Client, url string) {
	const clients = 16
	var mu sync.Mutex
	var all []time.Duration
	work := make(chan struct{}, clients)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var own []time.Duration
			for range work {
				start := time.Now()
				res, err := c.Get(url)
				if err != nil {
					b.Error(err)
					continue
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				own = append(own, time.Since(start))
			}
			mu.Lock()
			all = append(all, own...)
			mu.Unlock()
		})
	}
	start := time.Now()
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/time.Since(start).Seconds(), "req/s")
	b.ReportMetric(float64(all[len(all)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100])/1e6, "p99-ms")
}

// BenchmarkDownload is one large body through the gateway.
func BenchmarkDownload(b *testing.B) {
	body := allBytes(16 << 20)
	for _, h2 := range []bool{false, true} {
		b.Run(fmt.Sprintf("h2=%v", h2), func(b *testing.B) {
			r := simple(b, h2, func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }, nil)
			c := r.client(h2)
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				res, err := c.Get("https://" + hostA + "/")
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, res.Body); err != nil || n != int64(len(body)) {
					b.Fatal(n, err)
				}
				res.Body.Close()
			}
		})
	}
}
