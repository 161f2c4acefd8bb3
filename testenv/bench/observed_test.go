package bench

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"proctor/testenv"
)

// BenchmarkPandas times the demonstration's analysis, from the start of its program to its
// end, in a box that is watched and recorded against the same box without any program
// loaded. What one costs more is less than what this machine's speed changes by within a minute,
// so they take turns in short blocks. "in-pairs" is the median of the ratios of neighbours.
func BenchmarkPandas(b *testing.B) {
	testenv.Root(b)
	l := newLab(b, testenv.ImagesDir(b), "python-data")
	code, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(b), "examples", "weather.py"))
	if err != nil {
		b.Fatal(err)
	}
	input, err := os.Open(filepath.Join(testenv.ModuleRoot(b), "examples", "data", "seattle-weather.csv"))
	if err != nil {
		b.Fatal(err)
	}
	defer input.Close()
	j := job{"/usr/bin/python3", "weather.py", code, input}
	const pairs, runs = 30, 3
	l.run(b, nil, j) // warms caches
	// Of several turns (-benchtime 3x), all count: the more, the less does what else the machine
	// does matter.
	var watched, bare []time.Duration
	var ratios []float64
	for b.Loop() {
		for i := range pairs {
			var with, without []time.Duration
			for _, watch := range turn([]bool{false, true}, i) {
				if watch {
					with = times(l.block(b, true, j, runs))
				} else {
					without = times(l.block(b, false, j, runs))
				}
			}
			watched, bare = append(watched, with...), append(bare, without...)
			ratios = append(ratios, float64(median(with))/float64(median(without)))
		}
	}
	report(b, "watched", watched, "bare", bare)
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "in-pairs")
}

// BenchmarkPrograms times a compile, a clone, a walk and two loops of open and close inside a
// box, as testdata/programs.bash does, with its sizes. Each is timed in the box itself.
func BenchmarkPrograms(b *testing.B) {
	testenv.Root(b)
	dir := os.Getenv("PROCTOR_ORACLE")
	if dir == "" {
		b.Fatal("set PROCTOR_ORACLE to where the image \"oracle\" is (make bench does)")
	}
	l := newLab(b, dir, "oracle")
	code, err := os.ReadFile("testdata/programs.bash")
	if err != nil {
		b.Fatal(err)
	}
	j := job{interpreter: "/bin/bash", name: "programs.bash", code: code}
	const boxes = 2
	var watched, bare []result
	l.run(b, nil, j)
	for range 4 {
		bare = append(bare, l.block(b, false, j, boxes)...)
		watched = append(watched, l.block(b, true, j, 2*boxes)...)
		bare = append(bare, l.block(b, false, j, boxes)...)
	}
	with, without := measured(b, watched), measured(b, bare)
	for _, name := range slices.Sorted(maps.Keys(with)) {
		b.Run(name, func(b *testing.B) { report(b, "watched", with[name], "bare", without[name]) })
	}
}

// measured are the times that boxes printed, by name.
func measured(b *testing.B, results []result) map[string][]time.Duration {
	b.Helper()
	all := map[string][]time.Duration{}
	for _, r := range results {
		for line := range strings.Lines(r.stdout) {
			var name string
			var ns int64
			if _, err := fmt.Sscanf(line, "took %s %d", &name, &ns); err == nil {
				all[name] = append(all[name], time.Duration(ns))
			}
		}
	}
	if len(all) == 0 {
		b.Fatalf("nothing was measured: %s", results[0].stdout)
	}
	return all
}
