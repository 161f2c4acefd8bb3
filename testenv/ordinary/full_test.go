package ordinary

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"testing"

	"proctor/audit"
	"proctor/testenv"
)

// languages are the programs for what no shipped image has.
var languages = []program{
	{file: "shell/tools.sh", flags: inImage("ordinary", "sh")},
	{file: "shell/busybox.sh", flags: inImage("ordinary", "busybox")},
	{file: "shell/compile.bash", flags: inImage("ordinary", "bash")},
	{file: "shell/jvm.bash", flags: append(inImage("ordinary", "bash"), "--timeout", "5m")},
	{file: "java/Standard.java", flags: inImage("ordinary", "java"), args: []string{fmt.Sprint(min(2, runtime.NumCPU()))}},
	{file: "node/standard.js", flags: inImage("ordinary", "node")},
	{file: "perl/standard.pl", flags: inImage("ordinary", "perl")},
}

// full starts a supervisor with the image of images/ordinary.yaml, or skips where the full
// set is not asked for.
func full(t *testing.T) *testenv.Proctor {
	testenv.Root(t)
	dir := os.Getenv("PROCTOR_ORDINARY")
	if dir == "" {
		t.Skip("full set: set PROCTOR_ORDINARY to where the image \"ordinary\" is (make test-ordinary does)")
	}
	if _, err := os.Stat(dir + "/images.lock"); err != nil {
		t.Fatalf("PROCTOR_ORDINARY=%s: %v: run `make test-ordinary`", dir, err)
	}
	testenv.LeakCheck(t)
	return testenv.StartProctor(t, testenv.ProctorOptions{Args: []string{"--images", dir}})
}

func TestLanguages(t *testing.T) {
	p := full(t)
	for _, prog := range languages {
		t.Run(prog.name(), func(t *testing.T) { runs(t, p, prog) })
	}
	t.Run("golang", func(t *testing.T) { runsGo(t, p, "ordinary") })
}

// CPython's own tests. What fails has to be what is known to fail, and all of that.
func TestCPython(t *testing.T) {
	p := full(t)
	for _, m := range modules {
		t.Run(m.name, func(t *testing.T) {
			v := run(t, p, program{
				file:  "python/cpython.py",
				flags: []string{"--image", "ordinary", "--memory", "2G", "--scratch", "2G", "--pids", "1024", "--timeout", "15m"},
				args:  append([]string{m.name, cmp.Or(m.uses, "cpu")}, m.fails...),
			})
			if v.Status != audit.StatusOK {
				t.Errorf("%s: %s\n%s%s", v.Status, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
			}
			t.Logf("%s", v.Stdout.Bytes())
		})
	}
}
