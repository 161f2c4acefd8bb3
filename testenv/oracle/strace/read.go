package strace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Options are the arguments that make strace write what [Read] reads; which calls, whom
// and where to are the caller's to add.
var Options = []string{
	"-f", "-v", "-xx", "--string-limit=65536",
	"--decode-fds=path,socket", "--decode-pids=pidns",
}

// A Call is one system call.
type Call struct {
	Thread int      // who, by the number on the host
	Name   string   // of the call
	Args   []string // as they are printed; of a call that did not return perhaps not all
	Result string   // as it is printed, without error and comment; "?" if there is none
	Errno  string   // the error's name
	Host   int      // a result that is a process, by its number on the host; else 0
	Line   int      // where in the file it began, from 1
}

// Succeeded says whether the call returned, and no error.
func (c *Call) Succeeded() bool { return c.Errno == "" && c.Result != "?" }

// Returned says whether the end of the call was seen at all.
func (c *Call) Returned() bool { return c.Errno != "" || c.Result != "?" }

// An End is the end of a thread.
type End struct {
	Thread int
	Code   int    // 0 when a signal ended it
	Signal string // SIGKILL and the like
	Core   bool
	Line   int
}

// A Step is a call or an end.
type Step struct {
	Call *Call
	End  *End
}

func (s Step) line() int {
	if s.Call != nil {
		return s.Call.Line
	}
	return s.End.Line
}

// begun is a call of which the rest is still to come.
type begun struct {
	text string
	line int
}

type reader struct {
	steps []Step
	open  map[int]begun // by thread
	line  int
}

// Read returns everything that a file holds, in the order in which it began. A call whose
// thread was killed in it is there, without a result.
func Read(from io.Reader) ([]Step, error) {
	r := reader{open: map[int]begun{}}
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && text == "" {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		r.line++
		if err := r.read(strings.TrimSuffix(text, "\n")); err != nil {
			return nil, fmt.Errorf("line %d: %w: %.300s", r.line, err, text)
		}
	}
	for thread := range r.open {
		return nil, fmt.Errorf("thread %d is in a call at the end of the file", thread)
	}
	slices.SortStableFunc(r.steps, func(a, b Step) int { return a.line() - b.line() })
	return r.steps, nil
}

func (r *reader) read(line string) error {
	number, text, ok := strings.Cut(line, " ")
	thread, err := strconv.Atoi(number)
	if !ok || err != nil {
		return errors.New("does not begin with a thread's number")
	}
	text = strings.TrimLeft(text, " ")
	text, err = r.withoutRepeat(thread, text)
	if err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(text, "+++ "):
		return r.ended(thread, text)
	case strings.HasPrefix(text, "--- "): // a signal that is delivered, or a stop
		return nil
	case strings.HasPrefix(text, "<... "):
		return r.resumed(thread, text)
	}
	if _, ok := r.open[thread]; ok {
		return errors.New("its thread is in a call already")
	}
	if start, ok := toBeContinued(text); ok {
		r.open[thread] = begun{start, r.line}
		return nil
	}
	return r.finish(thread, begun{text, r.line})
}

const superseded = "superseded by execve in pid "

// withoutRepeat takes away what strace may write before "+++ superseded by…" and on the same
// line: once more the beginning of the call in which the other thread is, and again the
// leader's number.
func (r *reader) withoutRepeat(leader int, text string) (string, error) {
	end := fmt.Sprintf("%-5d +++ %s", leader, superseded)
	repeat, heir, ok := strings.Cut(text, end)
	if !ok {
		return text, nil
	}
	thread, err := strconv.Atoi(strings.TrimSuffix(heir, " +++"))
	if err != nil {
		return "", err
	}
	if b, ok := r.open[thread]; !ok || b.text != repeat {
		return "", errors.New("two things on one line")
	}
	return "+++ " + superseded + heir, nil
}

const unfinished = " <unfinished ...>"

// toBeContinued returns what there is of a call whose line was broken off: because another
// thread had something to say, or because its own became the leader of its process.
func toBeContinued(text string) (start string, ok bool) {
	if start, ok = strings.CutSuffix(text, unfinished); ok {
		return start, true
	}
	if !strings.HasSuffix(text, " ...>") {
		return "", false
	}
	start, _, ok = strings.Cut(text, " <pid changed to ")
	return start, ok
}

// resumed reads "<... NAME resumed>REST".
func (r *reader) resumed(thread int, text string) error {
	b, ok := r.open[thread]
	if !ok {
		return errors.New("its thread is in no call")
	}
	name, rest, ok := strings.Cut(strings.TrimPrefix(text, "<... "), " resumed>")
	if !ok || !strings.HasPrefix(b.text, name+"(") {
		return fmt.Errorf("its thread is in %.40s", b.text)
	}
	delete(r.open, thread)
	b.text += rest
	return r.finish(thread, b)
}

// finish reads "NAME(ARGUMENTS) = RESULT".
func (r *reader) finish(thread int, b begun) error {
	c := &Call{Thread: thread, Line: b.line}
	// Of a thread that is killed in a call.
	text := strings.Replace(b.text, unfinished+")", ")", 1)
	name, rest, ok := strings.Cut(text, "(")
	if !ok || name == "" {
		return errors.New("no call")
	}
	c.Name = name
	end, err := closing(rest)
	if err != nil {
		return err
	}
	if c.Args, err = split(rest[:end]); err != nil {
		return err
	}
	result, ok := strings.CutPrefix(strings.TrimLeft(rest[end+1:], " "), "= ")
	if !ok {
		return errors.New("no result")
	}
	if err := c.result(result); err != nil {
		return err
	}
	r.steps = append(r.steps, Step{Call: c})
	return nil
}

// result reads "3<PATH>", "-1 ENOENT (No such file or directory)", "? ERESTARTSYS (To be
// restarted…)", "5 /* 1234 in strace's PID NS */" and "?".
func (c *Call) result(text string) error {
	end := 0
	for end < len(text) && text[end] != ' ' {
		var err error
		if end, err = token(text, end); err != nil {
			return err
		}
	}
	c.Result = text[:end]
	rest := strings.TrimLeft(text[end:], " ")
	switch {
	case c.Result == "":
		return errors.New("no result")
	case strings.HasPrefix(rest, "E"):
		c.Errno, _, _ = strings.Cut(rest, " ")
	case c.Result == "-1":
		return errors.New("no name of its error")
	case strings.HasPrefix(rest, "/*"):
		host, ok := strings.CutSuffix(strings.TrimPrefix(rest, "/* "), " in strace's PID NS */")
		var err error
		if c.Host, err = strconv.Atoi(host); !ok || err != nil {
			return errors.New("unknown comment")
		}
	case rest != "" && !strings.HasPrefix(rest, "("):
		return errors.New("unknown result")
	}
	if c.Host == 0 && makesProcess[c.Name] && c.Succeeded() {
		var err error
		if c.Host, err = strconv.Atoi(c.Result); err != nil {
			return err
		}
	}
	return nil
}

// makesProcess are the calls whose result is a process, of which only one number is
// printed where both namespaces have the same.
var makesProcess = map[string]bool{"clone": true, "clone3": true, "fork": true, "vfork": true}

// ended reads what is between plus signs.
func (r *reader) ended(thread int, text string) error {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "+++ "), " +++")
	end := &End{Thread: thread, Line: r.line}
	if code, ok := strings.CutPrefix(text, "exited with "); ok {
		var err error
		if end.Code, err = strconv.Atoi(code); err != nil {
			return err
		}
	} else if signal, ok := strings.CutPrefix(text, "killed by "); ok {
		end.Signal, end.Core = strings.CutSuffix(signal, " (core dumped)")
	} else if heir, ok := strings.CutPrefix(text, superseded); ok {
		return r.superseded(thread, heir)
	} else {
		return errors.New("unknown end")
	}
	if b, ok := r.open[thread]; ok {
		delete(r.open, thread)
		if err := r.finish(thread, begun{b.text + ") = ?", b.line}); err != nil {
			return err
		}
	}
	r.steps = append(r.steps, Step{End: end})
	return nil
}

// superseded: another thread of the leader's program became the leader, in a call that
// returns under the leader's number. The leader's own call ended with it.
func (r *reader) superseded(leader int, heir string) error {
	thread, err := strconv.Atoi(heir)
	if err != nil {
		return err
	}
	b, ok := r.open[thread]
	if !ok {
		return errors.New("by a thread that is in no call")
	}
	if own, ok := r.open[leader]; ok {
		if err := r.finish(leader, begun{own.text + ") = ?", own.line}); err != nil {
			return err
		}
	}
	delete(r.open, thread)
	r.open[leader] = b
	return nil
}
