package oracle

import (
	"errors"
	"slices"
	"strings"

	"proctor/audit"
	"proctor/testenv/oracle/strace"
)

var opens = comparer{
	kinds:  []audit.Kind{audit.KindOpen},
	calls:  []string{"open", "openat", "openat2", "creat", "memfd_create"},
	expect: expectOpen,
}

func expectOpen(w *world, by actor, s strace.Step) ([]audit.Event, error) {
	c := s.Call
	if c == nil || !c.Returned() {
		return nil, nil
	}
	path, flags, err := openArguments(c)
	if err != nil {
		return nil, err
	}
	open := &audit.Open{Access: access(flags), Flags: openFlags(flags), Errno: c.Errno}
	if c.Name == "memfd_create" {
		open.Access, open.Flags = audit.AccessBoth, []string{"memfd"}
	}
	if c.Succeeded() {
		d, err := strace.ReadDescriptor(c.Result)
		if err != nil {
			return nil, err
		}
		open.Path, open.Deleted = audit.Text(d.Name), d.Deleted
		open.Truncated = d.Name == "" // as an event is that has no more than the end
	} else {
		if open, err = failedOpen(open, path); err != nil {
			return nil, err
		}
		if open.Dir, err = w.startingFrom(by, c, open.Path); err != nil {
			return nil, err
		}
	}
	e := by.event(audit.KindOpen)
	e.Open = open
	return []audit.Event{e}, nil
}

// openArguments returns what is printed for the path and for the flags.
func openArguments(c *strace.Call) (path string, flags []string, err error) {
	args := c.Args
	if c.Name == "openat" || c.Name == "openat2" {
		args = args[min(1, len(args)):]
	}
	if len(args) < 2 {
		return "", nil, errors.New("arguments are missing")
	}
	switch c.Name {
	case "memfd_create":
		return args[0], []string{"O_RDWR"}, nil
	case "creat":
		return args[0], []string{"O_WRONLY", "O_CREAT", "O_TRUNC"}, nil
	case "openat2":
		if !strings.HasPrefix(args[1], "{") { // nothing is there: no flags either
			return args[0], []string{"O_RDONLY"}, nil
		}
		how, err := strace.Struct(args[1])
		return args[0], strace.Flags(how["flags"]), err
	}
	return args[0], strace.Flags(args[1]), nil
}

// startingFrom is what a relative name of a failed open starts from.
func (w *world) startingFrom(by actor, c *strace.Call, path audit.Text) (audit.Text, error) {
	if strings.HasPrefix(string(path), "/") {
		return "", nil
	}
	if c.Name != "openat" && c.Name != "openat2" {
		return audit.Text(by.cwd), nil
	}
	d, err := strace.ReadDescriptor(c.Args[0])
	return audit.Text(d.Name), err
}

// failedOpen names the caller's own string, as there is no file.
func failedOpen(open *audit.Open, arg string) (*audit.Open, error) {
	open.Unresolved = true
	path, cut, err := strace.String(arg)
	if errors.Is(err, strace.ErrNoString) {
		open.Truncated = true
		return open, nil
	}
	open.Path, open.Truncated = cutString(path, cut)
	return open, err
}

func access(flags []string) audit.Access {
	switch {
	case slices.Contains(flags, "O_PATH"):
		return audit.AccessPath
	case slices.Contains(flags, "O_RDONLY"):
		return audit.AccessRead
	case slices.Contains(flags, "O_WRONLY"):
		return audit.AccessWrite
	}
	return audit.AccessBoth
}

// openFlags are those that an event names, in its order and words.
func openFlags(flags []string) []string {
	var names []string
	for _, f := range []struct{ flag, name string }{
		{"O_CREAT", "create"}, {"O_EXCL", "exclusive"}, {"O_TRUNC", "truncate"}, {"O_APPEND", "append"},
		{"O_TMPFILE", "tmpfile"}, {"O_DIRECTORY", "directory"},
	} {
		if slices.Contains(flags, f.flag) {
			names = append(names, f.name)
		}
	}
	return names
}
