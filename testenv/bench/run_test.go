package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"proctor/testenv"
)

// BenchmarkRunTrue times the whole of `proctor run`, from exec of the client to its exit,
// for a program that does nothing, against `ctr run --rm` of the same image with the same
// runc on the same containerd. In turn, so that a change of the machine's speed hits both.
func BenchmarkRunTrue(b *testing.B) {
	testenv.Root(b)
	p := testenv.StartProctor(b, testenv.ProctorOptions{})
	program := filepath.Join(b.TempDir(), "true.sh")
	if err := os.WriteFile(program, []byte("true\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	ctr := ctrCommand(b, p, "shell")
	const pairs = 40
	for b.Loop() {
		var ours, theirs []time.Duration
		for i := range pairs + 2 {
			a := timed(b, p.Command("run", program))
			c := timed(b, exec.Command(ctr[0], append(ctr[1:], fmt.Sprintf("bench-%d-%d", b.N, i), "/bin/sh", "-c", "true")...))
			if i >= 2 { // the first two warm caches
				ours, theirs = append(ours, a), append(theirs, c)
			}
		}
		report(b, "proctor", ours, "ctr", theirs)
	}
}

// ctrCommand is `ctr run --rm` on the containerd of p, up to the container's id.
func ctrCommand(b *testing.B, p *testenv.Proctor, image string) []string {
	b.Helper()
	ctr := filepath.Join(testenv.BinDir(b), "ctr")
	base := []string{ctr, "--address", p.ContainerdAddress(), "--namespace", p.Namespace(b)}
	out, err := exec.Command(base[0], append(base[1:], "images", "list", "--quiet", "name~="+image)...).Output()
	if err != nil {
		b.Fatal(err)
	}
	ref := string(bytes.Fields(out)[0])
	return append(base, "run", "--rm", "--runc-binary", filepath.Join(testenv.BinDir(b), "runc"), ref)
}

func timed(b *testing.B, cmd *exec.Cmd) time.Duration {
	b.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, out.Bytes())
	}
	return time.Since(began)
}

// BenchmarkTwentyAtATime makes 200 runs, 20 at a time. All must come out right, and the
// host must be as before.
func BenchmarkTwentyAtATime(b *testing.B) {
	testenv.Root(b)
	testenv.LeakCheck(b)
	p := testenv.StartProctor(b, testenv.ProctorOptions{})
	program := filepath.Join(b.TempDir(), "count.sh")
	if err := os.WriteFile(program, []byte("echo $(( $1 * 2 ))\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	const runs, atOnce = 200, 20
	for b.Loop() {
		began := time.Now()
		var wg sync.WaitGroup
		places := make(chan struct{}, atOnce)
		for i := range runs {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				cmd := p.Command("run", program, "--", fmt.Sprint(i))
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Run(); err != nil || stdout.String() != fmt.Sprintln(2*i) {
					b.Errorf("run %d: %v, stdout %q, stderr %s", i, err, &stdout, &stderr)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(runs/time.Since(began).Seconds(), "runs/s")
	}
	b.ReportMetric(0, "ns/op")
}
