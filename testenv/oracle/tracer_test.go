package oracle

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"proctor/testenv/oracle/strace"
)

// A tracer is an strace at work.
type tracer struct {
	cmd   *exec.Cmd
	file  string
	log   []string // what it said; to be read when it has ended
	ended chan error
}

// tracerPatience is how long strace may take to attach, and to end after the box.
const tracerPatience = 30 * time.Second

// attach starts an strace and returns when it has the process.
func attach(t *testing.T, pid int, file string) *tracer {
	t.Helper()
	args := append([]string{"-o", file, "-e", "trace=" + strings.Join(tracedCalls(), ","), "-p", fmt.Sprint(pid)}, strace.Options...)
	tr := &tracer{cmd: exec.Command("strace", args...), file: file, ended: make(chan error, 1)}
	r, w, err := os.Pipe()
	must(t, err)
	tr.cmd.Stderr = w
	err = tr.cmd.Start()
	w.Close()
	must(t, err)
	t.Cleanup(func() { _ = tr.cmd.Process.Kill() }) // an error where it has ended, as it should
	attached := make(chan bool)
	go tr.listen(r, fmt.Sprintf("Process %d attached", pid), attached)
	select {
	case <-attached:
	case err := <-tr.ended:
		t.Fatalf("strace ended: %v\n%s", err, strings.Join(tr.log, "\n"))
	case <-time.After(tracerPatience):
		t.Fatalf("strace did not attach within %s", tracerPatience)
	}
	return tr
}

// listen closes heard at the word, and waits for the tracer's end.
func (tr *tracer) listen(from *os.File, word string, heard chan<- bool) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		tr.log = append(tr.log, lines.Text())
		if heard != nil && strings.HasSuffix(lines.Text(), word) {
			close(heard)
			heard = nil
		}
	}
	from.Close()
	tr.ended <- tr.cmd.Wait()
}

// wait returns what was traced, once the last process is gone.
func (tr *tracer) wait(t *testing.T) []strace.Step {
	t.Helper()
	select {
	case <-tr.ended: // its status is that of the process it was attached to
	case <-time.After(tracerPatience):
		t.Fatalf("strace did not end within %s of the box", tracerPatience)
	}
	f, err := os.Open(tr.file)
	must(t, err)
	defer f.Close()
	steps, err := strace.Read(f)
	must(t, err)
	return steps
}
