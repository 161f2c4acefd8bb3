package main_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	proctor "proctor/cmd/proctor"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata/script")

func TestMain(m *testing.M) {
	if what, ok := os.LookupEnv(attemptEnv); ok {
		fmt.Println(attempt(what))
		return
	}
	testscript.Main(fixtures{m}, map[string]func(){"proctor": proctor.Main})
}

// fixtures takes the shared supervisor down after the last test.
type fixtures struct{ *testing.M }

func (f fixtures) Run() int {
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
