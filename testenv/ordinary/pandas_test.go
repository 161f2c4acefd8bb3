package ordinary

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"proctor/audit"
	"proctor/testenv"
)

const pandasAtATime = 8

// manyPandas runs a short analysis many times, some at a time: PROCTOR_PANDAS_RUNS says how
// often. None of them may end otherwise than by itself.
func manyPandas(t *testing.T, p *testenv.Proctor) {
	n := 64
	if s := os.Getenv("PROCTOR_PANDAS_RUNS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n <= 0 {
			t.Fatalf("PROCTOR_PANDAS_RUNS=%q: write a positive number", s)
		}
	}
	began := time.Now()
	var slowest time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	jobs := make(chan int)
	for range pandasAtATime {
		wg.Go(func() {
			for range jobs {
				start := time.Now()
				v, err := verdict(p, "testdata/python/short.py", program{flags: []string{"--cpus", "1"}})
				took := time.Since(start)
				if err != nil {
					t.Error(err)
					continue
				}
				if v.Status != audit.StatusOK || !strings.HasSuffix(string(v.Stdout.Bytes()), "ok\n") || v.Audit.Lost > 0 {
					t.Errorf("run %s: %s, exit code %d, %d events lost: %s\n%s%s",
						v.Run, v.Status, v.ExitCode, v.Audit.Lost, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
				}
				mu.Lock()
				slowest = max(slowest, took)
				mu.Unlock()
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	took := time.Since(began)
	t.Logf("%d runs, %d at a time, in %s: %s a run, the slowest %s",
		n, pandasAtATime, took.Round(time.Second), (took / time.Duration(n)).Round(time.Millisecond), slowest.Round(time.Millisecond))
}
