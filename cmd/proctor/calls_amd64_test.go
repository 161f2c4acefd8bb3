package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/testenv"
)

// The numbers of calls are tried up to some that are still to come.
const lastCall = 600

// stopped is an error that the kernel does not have: what would have reached it is answered so.
const stopped = unix.Errno(1234)

// passed is the answer to a call that the kernel would have had.
const passed = unix.Errno(0)

// writtenCalls reads the table of docs/privilege.md: for each call the answers that it may get.
func writtenCalls(t *testing.T, info *arch.Info) map[int][]unix.Errno {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "docs", "privilege.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(doc), "\n## System calls\n")
	if !ok {
		t.Fatal("docs/privilege.md has no list of system calls")
	}
	answers := map[string][]unix.Errno{
		"kernel": {passed}, "kernel or ENOSYS": {passed, unix.ENOSYS}, "ENOSYS": {unix.ENOSYS}, "EPERM": {unix.EPERM},
		"by argument": nil, "not filtered": nil, // see argued and TestSystemCalls
	}
	calls := map[int][]unix.Errno{}
	name := regexp.MustCompile("`([a-z0-9_]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "answer" {
			continue
		}
		want, ok := answers[strings.TrimSpace(cells[1])]
		if !ok {
			t.Errorf("docs/privilege.md: no such answer: %s", cells[1])
		}
		if len(strings.TrimSpace(cells[3])) < 10 {
			t.Errorf("docs/privilege.md: without a reason: %s", line)
		}
		for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
			number, ok := info.SyscallNames[m[1]]
			if _, twice := calls[number]; !ok || twice {
				t.Errorf("docs/privilege.md: %s is no call of %s, or stands twice", m[1], info.Name)
			}
			calls[number] = want
		}
	}
	return calls
}

// fcntls are the commands of fcntl that a box has. Leases (1024) and hints how long what is written
// will live (1036, 1038) are not among them.
var fcntls = []uint64{
	unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW,
	unix.F_SETOWN, unix.F_GETOWN, unix.F_SETSIG, unix.F_GETSIG, unix.F_SETOWN_EX, unix.F_GETOWN_EX,
	unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW,
	1025 /* F_GETLEASE */, 1026 /* F_NOTIFY */, 1027 /* F_DUPFD_QUERY */, 1028 /* F_CREATED_QUERY */, 1030, /* F_DUPFD_CLOEXEC */
	1031 /* F_SETPIPE_SZ */, 1032 /* F_GETPIPE_SZ */, 1033 /* F_ADD_SEALS */, 1034 /* F_GET_SEALS */, 1035, /* F_GET_RW_HINT */
}

// A call with arguments, and what is to come of it.
type argued struct {
	call []uint64
	want unix.Errno
}

// arguedCalls are those whose answer depends on an argument, with each value that matters. The
// kernel reads ints, so that what stands above them must change nothing.
func arguedCalls(info *arch.Info) []argued {
	var list []argued
	number := func(name string) uint64 { return uint64(info.SyscallNames[name]) }
	answer := func(ok bool) unix.Errno {
		if ok {
			return passed
		}
		return unix.EPERM
	}
	for bit := range 32 {
		flag := uint64(1) << bit
		const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
		list = append(list, argued{[]uint64{number("clone"), flag | uint64(unix.SIGCHLD)}, answer(flag&namespaces == 0)})
	}
	for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} {
		for persona, ok := range map[uint64]bool{0: true, 0x20000: true, 0xffffffff: true, 1: false, 8: false, 0x40000: false, 0x80000: false, 0x100000: false, 0x400000: false} {
			list = append(list, argued{[]uint64{number("personality"), persona | high}, answer(ok)})
		}
		for family := range uint64(64) {
			list = append(list, argued{[]uint64{number("socketpair"), family | high, unix.SOCK_STREAM}, answer(family == unix.AF_UNIX)})
			for kind := range uint64(16) {
				for _, protocol := range []uint64{0, 1, 6, 17, 132, 136, 255, 262} {
					ok := family == unix.AF_UNIX ||
						(family == unix.AF_INET || family == unix.AF_INET6) && (kind == unix.SOCK_STREAM && (protocol == 0 || protocol == 6) || kind == unix.SOCK_DGRAM && (protocol == 0 || protocol == 17)) ||
						family == unix.AF_NETLINK && (kind == unix.SOCK_RAW || kind == unix.SOCK_DGRAM) && protocol == unix.NETLINK_ROUTE
					list = append(list, argued{[]uint64{number("socket"), family | high, kind | unix.SOCK_CLOEXEC, protocol | high}, answer(ok)})
				}
			}
		}
		for bit := range 8 {
			flag := uint64(1) << bit
			list = append(list, argued{[]uint64{number("seccomp"), unix.SECCOMP_SET_MODE_FILTER, flag | high}, answer(flag != unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)})
		}
		for command := range uint64(1100) {
			list = append(list, argued{[]uint64{number("fcntl"), 0, command | high}, answer(slices.Contains(fcntls, command))})
		}
		// Answered with 0, and not done.
		const answered = ^unix.Errno(0)
		for resource := range uint64(20) {
			want := answer(resource < 16)
			if resource == unix.RLIMIT_CORE {
				want = answered
			}
			list = append(list,
				argued{[]uint64{number("setrlimit"), resource | high, 1}, want},
				argued{[]uint64{number("prlimit64"), 0, resource | high, 1}, want},
				argued{[]uint64{number("prlimit64"), 0, resource | high, 1 << 32}, want},
				argued{[]uint64{number("prlimit64"), 0, resource | high, 0}, answer(resource < 16)})
		}
	}
	return list
}

// TestSystemCalls makes every call there is by its number, in each of the processor's ABIs, and
// compares what comes of it with the list of docs/privilege.md.
func TestSystemCalls(t *testing.T) {
	testenv.Root(t)
	testenv.LeakCheck(t)
	var answered sync.WaitGroup
	s := prepareSupervisor(t)
	s.startWith = func(s *supervisor) error {
		ours, err := listened(s, filterMarked)
		if err != nil {
			return err
		}
		defer unix.Close(ours)
		err = s.cmd.Start()
		closeAll(s.cmd.ExtraFiles)
		if err != nil {
			return err
		}
		return takeListener(ours, &answered, func(*notification) unix.Errno { return stopped })
	}
	s.images = pickImages(t, testenv.Dir(t), "python-data")
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		answered.Wait()
	})
	info := arch.X86_64
	written, argued := writtenCalls(t, info), arguedCalls(info)
	var all, numbers []int
	var calls [][]uint64
	for n := range lastCall {
		all = append(all, n)
		// These two no filter sees, on new kernels, and one ends whoever makes it.
		if n != 335 && n != 336 {
			numbers = append(numbers, n)
			calls = append(calls, []uint64{uint64(n)})
		}
	}
	for _, c := range argued {
		calls = append(calls, c.call)
	}
	text, err := json.Marshal(map[string]any{"native": calls, "i386": all, "x32": all})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(testenv.Dir(t), "attempts.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("testdata/calls.py")
	if err != nil {
		t.Fatal(err)
	}
	v := s.verdict(t, "python", string(code), "--input", file)
	var got struct{ Native, I386, X32 []int }
	if err := json.Unmarshal(v.Stdout.Bytes(), &got); err != nil || v.Status != audit.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", v.Status, v.Reason, err, v.Stderr.Bytes())
	}
	if len(got.Native) != len(calls) || len(got.I386) != lastCall || len(got.X32) != lastCall {
		t.Fatalf("%d, %d and %d answers", len(got.Native), len(got.I386), len(got.X32))
	}
	newest := info.SyscallNames["futex_requeue"]
	for i, n := range numbers {
		want, ok := written[n]
		name := info.SyscallNumbers[n]
		if !ok {
			if name != "" {
				t.Errorf("%s is not in docs/privilege.md: the box answers %s", name, answerName(got.Native[i]))
				continue
			}
			name = fmt.Sprint("number ", n)
			if want = []unix.Errno{unix.EPERM}; n > newest {
				want = []unix.Errno{unix.ENOSYS}
			}
		}
		if want != nil && !slices.Contains(want, unix.Errno(got.Native[i])) {
			t.Errorf("%s: %s, written is %v", name, answerName(got.Native[i]), want)
		}
	}
	for i, c := range argued {
		if answer := got.Native[len(numbers)+i]; unix.Errno(answer) != c.want {
			t.Errorf("%s(%#x): %s, want %s", info.SyscallNumbers[int(c.call[0])], c.call[1:], answerName(answer), answerName(int(c.want)))
		}
	}
	for n := range lastCall {
		if got.I386[n] != int(unix.SIGSYS) || got.X32[n] != int(unix.SIGSYS) {
			t.Errorf("call %d of i386 ended in signal %d, of x32 in %d, want SIGSYS", n, got.I386[n], got.X32[n])
		}
	}
}

func answerName(n int) string {
	switch n {
	case 0:
		return "let through"
	case -1:
		return "0, without the kernel"
	}
	return unix.ErrnoName(unix.Errno(n))
}
