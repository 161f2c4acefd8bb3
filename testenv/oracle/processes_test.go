package oracle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

var execs = comparer{
	kinds:  []audit.Kind{audit.KindExec},
	calls:  []string{"execve", "execveat"},
	expect: expectExec,
}

func expectExec(w *world, by actor, s strace.Step) ([]audit.Event, error) {
	if s.Call == nil || !s.Call.Returned() {
		return nil, nil
	}
	run := w.executed
	if !s.Call.Succeeded() {
		run = w.notExecuted
	}
	exec, err := run(by, s.Call)
	if err != nil {
		return nil, err
	}
	e := by.event(audit.KindExec)
	e.Exec = exec
	return []audit.Event{e}, nil
}

// executed says which program an exec started. The call tells which file it was asked for;
// links and scripts are followed in the box.
func (w *world) executed(by actor, c *strace.Call) (*audit.Exec, error) {
	file, deleted, argv, err := execArguments(c)
	if err != nil {
		return nil, err
	}
	path := w.executable(by, file)
	const deepest = 5 // interpreters that are scripts themselves
	for range deepest {
		words, err := w.root.shebang(path)
		if err != nil || words == nil { // one that has been removed was no script: the programs see to it
			break
		}
		argv = append(append(words, file), argv[min(1, len(argv)):]...)
		file = words[0]
		path = w.executable(by, file)
	}
	exec := &audit.Exec{File: audit.Text(path), Deleted: deleted}
	exec.Argv, exec.ArgvBytes = cutArguments(argv)
	return exec, nil
}

// notExecuted is an exec that failed: of the file there is the caller's string.
func (w *world) notExecuted(_ actor, c *strace.Call) (*audit.Exec, error) {
	name := c.Args[0]
	if c.Name == "execveat" {
		name = c.Args[min(1, len(c.Args)-1)]
	}
	exec := &audit.Exec{Errno: c.Errno}
	path, cut, err := strace.String(name)
	if errors.Is(err, strace.ErrNoString) {
		exec.Truncated = true
		return exec, nil
	}
	exec.File, exec.Truncated = cutString(path, cut)
	return exec, err
}

// execArguments returns the file, absolute where execveat names the directory, whether that is
// a file without a name, and the arguments.
func execArguments(c *strace.Call) (file string, deleted bool, argv []string, err error) {
	args := c.Args
	var at strace.Descriptor
	if c.Name == "execveat" && len(args) > 0 {
		if at, err = strace.ReadDescriptor(args[0]); err != nil {
			return "", false, nil, err
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return "", false, nil, errors.New("arguments are missing")
	}
	file, err = whole(args[0])
	if err != nil {
		return "", false, nil, err
	}
	switch {
	case at.Name != "" && file == "":
		file, deleted = at.Name, at.Deleted
	case at.Name != "" && !strings.HasPrefix(file, "/"):
		file = at.Name + "/" + file
	}
	argv, err = execArgv(args[1])
	return file, deleted, argv, err
}

func execArgv(list string) ([]string, error) {
	if list == "NULL" || list == "[]" {
		return []string{""}, nil // the kernel gives each program a name
	}
	words, err := strace.List(list)
	if err != nil {
		return nil, err
	}
	var argv []string
	for _, word := range words {
		arg, err := whole(word)
		if err != nil {
			return nil, err
		}
		argv = append(argv, arg)
	}
	return argv, nil
}

// whole is a string of which nothing is missing.
func whole(word string) (string, error) {
	s, cut, err := strace.String(word)
	if cut {
		return "", fmt.Errorf("cut: %.60s", word)
	}
	return s, err
}

// executable resolves the name of a program. A process's own program can only be known from
// the exec that started it: nobody is left to ask.
func (w *world) executable(by actor, file string) string {
	if file == "/proc/self/exe" || file == fmt.Sprintf("/proc/%d/exe", by.process.inside) {
		return by.exe
	}
	return w.resolve(by.absolute(file))
}

var forks = comparer{
	kinds:  []audit.Kind{audit.KindFork},
	calls:  []string{"clone", "clone3", "fork", "vfork"},
	expect: expectFork,
}

func expectFork(_ *world, by actor, s strace.Step) ([]audit.Event, error) {
	c := s.Call
	if c == nil || !c.Succeeded() || isThread(c) {
		return nil, nil
	}
	child, err := strconv.Atoi(c.Result)
	if err != nil {
		return nil, err
	}
	e := by.event(audit.KindFork)
	e.Fork = &audit.Fork{Child: uint32(child), ChildHost: uint32(c.Host)}
	return []audit.Event{e}, nil
}

var exits = comparer{
	kinds:  []audit.Kind{audit.KindExit},
	expect: expectExit,
}

// expectExit: a process ends when its first thread does, whose end waits for the others'.
func expectExit(_ *world, by actor, s strace.Step) ([]audit.Event, error) {
	if s.End == nil || s.End.Thread != by.host {
		return nil, nil
	}
	e := by.event(audit.KindExit)
	e.Exit = &audit.Exit{Code: s.End.Code, Signal: s.End.Signal, Core: s.End.Core}
	return []audit.Event{e}, nil
}
