package main_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"proctor/bpf"
	proctor "proctor/cmd/proctor"
	"proctor/supervisor/container"
	"proctor/testenv"
)

func observed(traced []string) []string { return bpf.Exits(container.Permitted(), traced) }

var update = flag.Bool("update", false, "rewrite the golden files in testdata/script")

func TestMain(m *testing.M) {
	if what, ok := os.LookupEnv(attemptEnv); ok {
		fmt.Println(attempt(what))
		return
	}
	testscript.Main(fixtures{m}, map[string]func(){"proctor": proctor.Main})
}

// fixtures are there for all tests; the shared supervisor is taken down after the last.
type fixtures struct{ *testing.M }

func (f fixtures) Run() int {
	if err := testenv.HoldTracepoints(observed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := f.M.Run()
	if shared.supervisor == nil {
		return code
	}
	if err := shared.supervisor.end(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared supervisor:", err)
		code = max(code, 1)
	}
	return code
}
