package ordinary

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"proctor/audit"
	"proctor/testenv"
)

// A program is one of testdata, and how it is run.
type program struct {
	file  string
	flags []string // of proctor run
	args  []string // its own
}

func (p program) name() string {
	words := []string{strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file))}
	if len(p.flags) > 0 {
		words = append(words, p.flags[1])
	}
	return strings.Join(append(words, p.args...), "-")
}

// inImage are the flags that choose an image, which name relies on being first.
func inImage(name, lang string) []string { return []string{"--image", name, "--lang", lang} }

// shipped are the programs for the images that Proctor comes with.
var shipped = []program{
	{file: "python/environment.py"},
	{file: "python/threads.py"},
	{file: "python/processes.py"},
	{file: "python/workers.py", args: []string{"fork"}},
	{file: "python/workers.py", args: []string{"spawn"}},
	{file: "python/workers.py", args: []string{"forkserver"}},
	{file: "python/events.py"},
	{file: "python/storage.py"},
	{file: "python/servers.py"},
	{file: "python/signals.py"},
	{file: "python/analysis.py"},
	{file: "shell/tools.sh", flags: inImage("shell", "sh")},
	{file: "shell/tools.sh", flags: inImage("python-data", "sh")},
	{file: "shell/features.bash", flags: inImage("shell", "bash")},
}

// The programs run one after another: some of them measure time.
func TestPrograms(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	p := testenv.StartProctor(t, testenv.ProctorOptions{})
	for _, prog := range shipped {
		t.Run(prog.name(), func(t *testing.T) { runs(t, p, prog) })
	}
	for _, limit := range []string{"0.5", "1", "2"} {
		t.Run("processors-"+limit, func(t *testing.T) {
			if limit == "2" && runtime.NumCPU() < 2 {
				limit = "1" // as much as the machine has
			}
			args := []string{limit, fmt.Sprint(runtime.NumCPU())}
			runs(t, p, program{file: "python/cpus.py", flags: []string{"--cpus", limit}, args: args})
		})
	}
	t.Run("output", func(t *testing.T) {
		v := run(t, p, program{file: "python/output.py"})
		if v.Status != audit.StatusOK || v.Stdout.Total != 100_000*101+3 || v.Stderr.Total != 3_000_000 {
			t.Errorf("%s, %s, %d bytes on stdout, %d on stderr", v.Status, v.Reason, v.Stdout.Total, v.Stderr.Total)
		}
		if !strings.HasSuffix(string(v.Stdout.Tail), "\nok\n") {
			t.Error("the end of the output is not kept")
		}
	})
	t.Run("golang", func(t *testing.T) { runsGo(t, p, "shell") })
	t.Run("pandas", func(t *testing.T) { manyPandas(t, p) })
}

// runs runs a program that has to end with "ok" on stdout and nothing on stderr.
func runs(t *testing.T, p *testenv.Proctor, prog program) {
	t.Helper()
	v := run(t, p, prog)
	stdout, stderr := string(v.Stdout.Bytes()), string(v.Stderr.Bytes())
	if v.Status != audit.StatusOK || v.ExitCode != 0 || !strings.HasSuffix(stdout, "ok\n") || stderr != "" {
		t.Errorf("%s, exit code %d: %s\nstdout: %s\nstderr: %s", v.Status, v.ExitCode, v.Reason, stdout, stderr)
	}
	if v.Audit.Lost > 0 {
		t.Errorf("%d events of its record are lost", v.Audit.Lost)
	}
	if len(v.Skipped) > 0 {
		t.Errorf("outputs refused: %v", v.Skipped)
	}
}

func run(t *testing.T, p *testenv.Proctor, prog program) *audit.Verdict {
	t.Helper()
	v, err := verdict(p, filepath.Join("testdata", prog.file), prog)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// verdict runs a file as prog says, wherever it is.
func verdict(p *testenv.Proctor, file string, prog program) (*audit.Verdict, error) {
	// Two processors, so that what runs at the same time really does.
	args := append([]string{"run", "--json", "--cpus", fmt.Sprint(min(2, runtime.NumCPU()))}, prog.flags...)
	args = append(append(args, file, "--"), prog.args...)
	cmd := p.Command(args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	v := &audit.Verdict{}
	if jsonErr := json.Unmarshal(out, v); jsonErr != nil {
		return nil, fmt.Errorf("no verdict: %w: %v: %s%s", jsonErr, err, out, &stderr)
	}
	return v, nil
}

// runsGo builds a static Go program here and runs it there.
func runsGo(t *testing.T, p *testenv.Proctor, image string) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "standard")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "testdata/golang/standard.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	// Inputs cannot be executed; what the program writes itself can.
	script := filepath.Join(dir, "start.sh")
	if err := os.WriteFile(script, []byte("cp /inputs/standard . && exec ./standard \"$@\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	prog := program{flags: append(inImage(image, "sh"), "--input", binary), args: []string{fmt.Sprint(min(2, runtime.NumCPU()))}}
	v, err := verdict(p, script, prog)
	if err != nil {
		t.Fatal(err)
	}
	if v.Status != audit.StatusOK || string(v.Stdout.Bytes()) != "ok\n" {
		t.Errorf("%s: %s\n%s%s", v.Status, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
	}
}
