package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"proctor/testenv"
)

// BenchmarkGrantedStart times the whole of `proctor run` for a program that does nothing, under
// a profile with grants against the profile that grants nothing.
func BenchmarkGrantedStart(b *testing.B) {
	testenv.Root(b)
	testenv.LeakCheck(b)
	dir := testenv.Dir(b)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
		return path
	}
	profiles := filepath.Join(dir, "profiles")
	if err := os.Mkdir(profiles, 0o755); err != nil {
		b.Fatal(err)
	}
	write("profiles/client.yaml", fmt.Sprintf(`
description: what a client of an API may reach
egress:
  allow:
    - {host: %s}
    - {host: "*.files.example", ports: [443, 8443]}
    - {cidr: 203.0.113.0/24, ports: [5432]}
`, apiHost))
	// Nobody asks it.
	config := write("proctor.yaml", fmt.Sprintf("profiles: %s\nnetwork: {resolvers: [%q]}\n", profiles, testNet1))
	p := testenv.StartProctor(b, testenv.ProctorOptions{Args: []string{"--config", config}})
	program := write("true.sh", "true\n")
	const pairs = 40
	for b.Loop() {
		var granted, offline, more []time.Duration
		for i := range pairs + 2 {
			g := func() time.Duration { return timed(b, p.Command("run", "--profile", "client", program)) }
			o := func() time.Duration { return timed(b, p.Command("run", program)) }
			var tg, to time.Duration
			if i%2 == 0 {
				tg, to = g(), o()
			} else {
				to, tg = o(), g()
			}
			if i >= 2 { // the first two warm caches
				granted, offline = append(granted, tg), append(offline, to)
				more = append(more, tg-to)
			}
		}
		report(b, "granted", granted, "offline", offline)
		b.ReportMetric(ms(median(granted)-median(offline)), "more-ms")
		b.ReportMetric(ms(median(more)), "more-in-pairs-ms") // what drifts is not in it
	}
}
