package main_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Scripts that need neither root nor a supervisor: the test binary is proctor.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", Cmds: commands, UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PROCTOR_SOCKET", e.WorkDir+"/none.sock")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
	})
}

// Scripts that call the shared supervisor with the built program.
func TestRootScripts(t *testing.T) {
	s := root(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script/root", Cmds: commands, UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PROCTOR_SOCKET", s.socket)
			e.Setenv("PATH", s.bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		},
	})
}

var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// exits CODE COMMAND [ARG...] runs a command that must end with this very code.
	"exits": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: exits code command [args...]")
		}
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		err = ts.Exec(args[1], args[2:]...)
		var exit *exec.ExitError
		got := 0
		if errors.As(err, &exit) {
			got = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		if got != want {
			ts.Fatalf("%q: exit code %d, want %d", args[1:], got, want)
		}
	},
	// matches FILE PATTERN-FILE compares line by line with regular expressions; a line "..."
	// stands for any number of lines.
	"matches": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: matches file pattern-file")
		}
		var pattern strings.Builder
		for line := range strings.Lines(ts.ReadFile(args[1])) {
			if line == "...\n" {
				pattern.WriteString(`(?:.*\n)*?`)
				continue
			}
			pattern.WriteString(line)
		}
		if text := ts.ReadFile(args[0]); !regexp.MustCompile(`^(?:` + pattern.String() + `)$`).MatchString(text) {
			ts.Fatalf("%s does not match %s:\n%s", args[0], args[1], text)
		}
	},
	// pick NAME FILE PATTERN sets a variable to the pattern's first group in a file.
	"pick": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 3 {
			ts.Fatalf("usage: pick variable file pattern")
		}
		m := regexp.MustCompile(args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
		if m == nil {
			ts.Fatalf("%s has nothing like %s", args[1], args[2])
		}
		ts.Setenv(args[0], m[1])
	},
}
