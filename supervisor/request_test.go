package supervisor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"proctor/strictyaml"
	"proctor/supervisor/box"
	"proctor/supervisor/limits"
)

// openFile opens path as a caller's client would, or otherwise.
func openFile(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

func goodRequest() *Request {
	return &Request{Language: "python", Name: "main.py", Code: []byte("1"), Args: []string{"", "-x", "a b\n"}}
}

// refusedFor checks that err is a refusal that says each of the given things.
func refusedFor(t *testing.T, err error, parts ...string) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Errorf("not refused: %v", err)
		return
	}
	if r.Fix == "" || r.What == "" || !strings.Contains(r.Error(), r.Fix) || !strings.Contains(r.Error(), r.What) {
		t.Errorf("incomplete refusal: %+v", r)
	}
	for _, part := range parts {
		if !strings.Contains(r.What, part) {
			t.Errorf("%q does not say %q", r.What, part)
		}
	}
	if strings.ContainsAny(r.Error(), "\n\x00\x1b") {
		t.Errorf("%q is not one line", r.Error())
	}
}

func TestRequestIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	for name, change := range map[string]func(*Request){
		"plain":            func(*Request) {},
		"largest code":     func(r *Request) { r.Code = make([]byte, MaxCode) },
		"most arguments":   func(r *Request) { r.Args = make([]string, maxArgs) },
		"longest argument": func(r *Request) { r.Args = []string{strings.Repeat("a", maxArgLen)} },
		"longest arguments": func(r *Request) {
			r.Args = nil
			for range maxArgAll / (1 << 16) {
				r.Args = append(r.Args, strings.Repeat("a", 1<<16-1))
			}
		},
		"argument not UTF-8": func(r *Request) { r.Args = []string{"\xff"} },
		"longest name":       func(r *Request) { r.Name = strings.Repeat("n", maxName) },
		"input to read":      func(r *Request) { r.Inputs = []Input{{"a.csv", openFile(t, path, unix.O_RDONLY)}} },
		"input to read and write": func(r *Request) {
			r.Inputs = []Input{{"a.csv", openFile(t, path, unix.O_RDWR)}, {"b.csv", openFile(t, path, unix.O_RDONLY)}}
		},
		"names that differ in case": func(r *Request) {
			r.Inputs = []Input{{"A", openFile(t, path, unix.O_RDONLY)}, {"a", openFile(t, path, unix.O_RDONLY)}}
		},
	} {
		r := goodRequest()
		change(r)
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRequestIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	input := func(name string, file *os.File) func(*Request) {
		return func(r *Request) { r.Inputs = []Input{{name, file}} }
	}
	good := openFile(t, path, unix.O_RDONLY)
	for _, test := range []struct {
		name   string
		change func(*Request)
		says   []string
	}{
		{"no code", func(r *Request) { r.Code = nil }, []string{"empty code"}},
		{"empty code", func(r *Request) { r.Code = []byte{} }, []string{"empty code"}},
		{"too much code", func(r *Request) { r.Code = make([]byte, MaxCode+1) }, []string{"8388609 bytes", "8388608"}},
		{"no name", func(r *Request) { r.Name = "" }, []string{`""`, "empty"}},
		{"name in a directory", func(r *Request) { r.Name = "a/b.py" }, []string{`"a/b.py"`, "'/'"}},
		{"too many arguments", func(r *Request) { r.Args = make([]string, maxArgs+1) }, []string{"4097 arguments", "4096"}},
		{"too long an argument", func(r *Request) { r.Args = []string{strings.Repeat("a", maxArgLen+1)} }, []string{"131072 bytes", `"aaaaaaaaaaaaaaaaaaaa"`, "131071"}},
		{"arguments too long together", func(r *Request) {
			r.Args = []string{""} // one NUL too many
			for range maxArgAll / (1 << 16) {
				r.Args = append(r.Args, strings.Repeat("a", 1<<16-1))
			}
		}, []string{"1048576"}},
		{"NUL in an argument", func(r *Request) { r.Args = []string{"a\x00b"} }, []string{`"a\x00b"`, "NUL"}},
		{"too many inputs", func(r *Request) {
			for i := range MaxInputs + 1 {
				r.Inputs = append(r.Inputs, Input{fmt.Sprint(i), good})
			}
		}, []string{"251 inputs", "250"}},
		{"input name twice", func(r *Request) { r.Inputs = []Input{{"a", good}, {"b", good}, {"a", good}} }, []string{`"a"`, "twice"}},
		{"input name above", input("..", good), []string{`".."`}},
		{"input name above a directory", input("../x", good), []string{`"../x"`, `".."`, "directory"}},
		{"absolute input name", input("/x", good), []string{`"/x"`, `""`, "empty"}},
		{"input name through a directory", input("a/../x", good), []string{`"a/../x"`, `".."`}},
		{"input name with an empty element", input("a//x", good), []string{`"a//x"`, "empty"}},
		{"input name of a directory", input("a/", good), []string{`"a/"`, "empty"}},
		{"input name with a control character in a directory", input("a\n/x", good), []string{"control"}},
		{"deep input name", input(strings.Repeat("d/", maxInputDepth)+"x", good), []string{"32 elements"}},
		{"long input name", input(strings.Repeat(strings.Repeat("d", 200)+"/", 16)+"x", good), []string{"3072 bytes"}},
		{"input below an input", func(r *Request) { r.Inputs = []Input{{"a/b", good}, {"a/b/c", good}} }, []string{`"a/b/c"`, `"a/b"`, "is an input"}},
		{"input above an input", func(r *Request) { r.Inputs = []Input{{"a/b/c", good}, {"a/b", good}} }, []string{`"a/b"`, "directory of another"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := goodRequest()
			test.change(r)
			refusedFor(t, r.check(), test.says...)
		})
	}
}

// What is no file that its holder may read is never made a File of.
func TestInputIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "data")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.Symlink(path, filepath.Join(dir, "link")))
	closed := openFile(t, path, unix.O_RDONLY)
	closed.Close()
	for _, test := range []struct {
		name string
		file *os.File
		says []string
	}{
		{"O_PATH", openFile(t, path, unix.O_PATH), []string{`"in"`, "O_PATH"}},
		{"O_PATH of a link", openFile(t, filepath.Join(dir, "link"), unix.O_PATH|unix.O_NOFOLLOW), []string{"O_PATH"}},
		{"opened for writing", openFile(t, path, unix.O_WRONLY), []string{`"in"`, "not opened for reading"}},
		{"opened for neither", openFile(t, path, unix.O_ACCMODE), []string{`"in"`, "not opened for reading"}},
		{"directory", openFile(t, dir, unix.O_RDONLY), []string{`"in"`, "is a directory"}},
		{"FIFO", openFile(t, fifo, unix.O_RDWR), []string{`"in"`, "a FIFO"}},
		{"device", openFile(t, "/dev/null", unix.O_RDONLY), []string{`"in"`, "a device"}},
		{"socket", dialUnix(t), []string{`"in"`, "a socket"}},
		{"file of /proc", openFile(t, "/proc/self/maps", unix.O_RDONLY), []string{`"in"`, "the kernel's word"}},
		{"file of /sys", openFile(t, "/sys/kernel/mm/transparent_hugepage/enabled", unix.O_RDONLY), []string{`"in"`, "the kernel's word"}},
		{"no open file", closed, []string{`"in"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in, err := NewInput("in", int(test.file.Fd()))
			refusedFor(t, err, test.says...)
			if in.File != nil {
				t.Error("it has a file")
			}
		})
	}
	for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_RDONLY | unix.O_NONBLOCK} {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		must(t, err)
		in, err := NewInput("in", fd)
		must(t, err)
		if text, err := io.ReadAll(in.File); err != nil || string(text) != "x" || in.Name != "in" {
			t.Errorf("%#x: %q, %v", flags, text, err)
		}
		in.File.Close()
	}
}

func dialUnix(t *testing.T) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	unix.Close(fds[1])
	f := os.NewFile(uintptr(fds[0]), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{
		"a", "main.py", ".hidden", "...", "-rf", "a b", `back\slash`, "ä", "日本\u3000語.csv", "Screenshot 9.41.00\u202fAM.png", "~", "*", "CON", "%2f", "😀",
		strings.Repeat("ä", 127), strings.Repeat("n", 255),
	} {
		if err := checkName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, says := range map[string]string{
		"": "empty", ".": "directory", "..": "directory", "/": "'/'", "//": "'/'", "a/": "'/'", "/a": "'/'", "a/b": "'/'", "../a": "'/'",
		"a\x00": "control", "a\nb": "control", "\x1b[2J": "control", "\x7f": "control", "\u0085": "control", "a\tb": "control",
		"\u202etxt.exe": "control", "\u2028": "control", "a\u200b": "control", "\ufeffa": "control",
		`both\` + "\n": "control", `\` + "\u202e": "control",
		"\xff": "UTF-8", "a\xe6\x97": "UTF-8", "\xed\xa0\x80": "UTF-8",
		strings.Repeat("n", 256): "255 bytes",
	} {
		if err := checkName(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to speak of %s", bad, err, says)
		}
	}
}

// Whatever name is taken, it makes one file in the directory it is meant for.
func TestCheckNameNamesOneFile(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[./\\a\x00]{0,6}`)).Draw(t, "name")
		if checkName(name) != nil {
			return
		}
		path := filepath.Join(dir, name)
		if filepath.Dir(path) != dir {
			t.Fatalf("%q becomes %q", name, path)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != name {
			t.Fatalf("%q made %v, %v", name, entries, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	})
}

var (
	defaults = box.Limits{Timeout: time.Minute, Memory: 1 << 30, CPUs: 1, CPUTime: time.Hour, Processes: 256, ScratchBytes: 512 << 20, ScratchInodes: 4096, OutputBytes: 1 << 20, OpenFiles: 1024, AuditEvents: 1000}
	ceiling  = box.Limits{Timeout: time.Hour, Memory: 4 << 30, CPUs: 4, CPUTime: time.Hour, Processes: 512, ScratchBytes: 1 << 30, ScratchInodes: 4096, OutputBytes: 1 << 20, OpenFiles: 1024, AuditEvents: 1000}
)

func TestLimitRequestWithin(t *testing.T) {
	with := func(change func(*box.Limits)) box.Limits {
		l := defaults
		change(&l)
		return l
	}
	for name, test := range map[string]struct {
		ask  LimitRequest
		want box.Limits
	}{
		"nothing asked":   {LimitRequest{}, defaults},
		"timeout":         {LimitRequest{Timeout: time.Second}, with(func(l *box.Limits) { l.Timeout = time.Second })},
		"timeout ceiling": {LimitRequest{Timeout: time.Hour}, with(func(l *box.Limits) { l.Timeout = time.Hour })},
		"memory ceiling":  {LimitRequest{Memory: 4 << 30}, with(func(l *box.Limits) { l.Memory = 4 << 30 })},
		"least memory":    {LimitRequest{Memory: box.MinMemory}, with(func(l *box.Limits) { l.Memory = box.MinMemory })},
		"cpus ceiling":    {LimitRequest{CPUs: 4}, with(func(l *box.Limits) { l.CPUs = 4 })},
		"part of a cpu":   {LimitRequest{CPUs: 0.5}, with(func(l *box.Limits) { l.CPUs = 0.5 })},
		"pids ceiling":    {LimitRequest{Processes: 512}, with(func(l *box.Limits) { l.Processes = 512 })},
		"scratch ceiling": {LimitRequest{ScratchBytes: 1 << 30}, with(func(l *box.Limits) { l.ScratchBytes = 1 << 30 })},
	} {
		got, err := test.ask.within(defaults, ceiling, "in the test")
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, test := range map[string]struct {
		ask  LimitRequest
		says []string
	}{
		"timeout above":  {LimitRequest{Timeout: time.Hour + 1}, []string{"timeout 1h0m0.000000001s", "ceiling is 1h0m0s"}},
		"negative":       {LimitRequest{Timeout: -time.Second}, []string{"timeout -1s", "positive"}},
		"memory above":   {LimitRequest{Memory: 8 << 30}, []string{"memory 8 GiB", "ceiling is 4 GiB"}},
		"memory by one":  {LimitRequest{Memory: 4<<30 + 1}, []string{"memory", "ceiling is 4 GiB"}},
		"no memory":      {LimitRequest{Memory: 1}, []string{"memory 1 bytes", "at least"}},
		"all memory":     {LimitRequest{Memory: math.MaxInt64}, []string{"memory", "ceiling"}},
		"less than none": {LimitRequest{Memory: math.MinInt64}, []string{"memory -9223372036854775808"}},
		"cpus above":     {LimitRequest{CPUs: 4.01}, []string{"cpus 4.01", "ceiling is 4"}},
		"cpus below":     {LimitRequest{CPUs: 0.01}, []string{"cpus 0.01", "at least 0.05"}},
		"no number":      {LimitRequest{CPUs: math.NaN()}, []string{"cpus NaN"}},
		"infinite":       {LimitRequest{CPUs: math.Inf(1)}, []string{"cpus +Inf", "ceiling"}},
		"cpu time above": {LimitRequest{CPUTime: time.Hour + 1}, []string{"cpu time 1h0m0.000000001s", "ceiling is 1h0m0s"}},
		"cpu time below": {LimitRequest{CPUTime: time.Millisecond}, []string{"cpu time 1ms", "at least 100ms"}},
		"pids above":     {LimitRequest{Processes: 513}, []string{"pids 513", "ceiling is 512"}},
		"pids below":     {LimitRequest{Processes: 1}, []string{"pids 1", "at least 2"}},
		"scratch above":  {LimitRequest{ScratchBytes: 2 << 30}, []string{"scratch 2 GiB", "ceiling is 1 GiB"}},
		"scratch below":  {LimitRequest{ScratchBytes: -1}, []string{"scratch -1 bytes"}},
	} {
		_, err := test.ask.within(defaults, ceiling, "in the test")
		t.Run(name, func(t *testing.T) { refusedFor(t, err, test.says...) })
	}
}

// A profile lowers and does not raise.
func TestLimitsOfAProfile(t *testing.T) {
	all := LimitRange{Default: defaults, Ceiling: ceiling}
	if got := all.under(limits.Range{}); got != all {
		t.Errorf("a profile that says nothing: %+v", got)
	}
	got := all.under(limits.Range{
		Default: limits.Set{Timeout: strictyaml.Duration(time.Second), CPUs: 3},
		Ceiling: limits.Set{Memory: 1 << 29, CPUs: 2, PIDs: 10_000},
	})
	want := all
	want.Default.Timeout, want.Default.Memory, want.Default.CPUs = time.Second, 1<<29, 2
	want.Ceiling.Memory, want.Ceiling.CPUs = 1<<29, 2
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Whatever is asked for, what is granted is valid and no more than the ceiling.
func TestLimitRequestNeverPassesCeiling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := LimitRequest{
			Timeout: time.Duration(rapid.Int64().Draw(t, "timeout")), Memory: rapid.Int64().Draw(t, "memory"),
			CPUs: rapid.Float64().Draw(t, "cpus"), Processes: rapid.Int64Range(-10, 1000).Draw(t, "pids"), ScratchBytes: rapid.Int64Range(-1, 2<<30).Draw(t, "scratch"),
		}
		if rapid.Bool().Draw(t, "modest") {
			ask.Timeout, ask.Memory, ask.CPUs = 0, 0, 0
		}
		got, err := ask.within(defaults, ceiling, "in the test")
		if err != nil {
			return
		}
		if got.Validate() != nil || got.Timeout > ceiling.Timeout || got.Memory > ceiling.Memory || !(got.CPUs <= ceiling.CPUs) ||
			got.Processes > ceiling.Processes || got.ScratchBytes > ceiling.ScratchBytes {
			t.Fatalf("%+v is granted %+v", ask, got)
		}
	})
}
