package strace

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func call(c Call) Step { return Step{Call: &c} }
func end(e End) Step   { return Step{End: &e} }

// Lines as strace 6.1 wrote them, with environments shortened.
func TestRead(t *testing.T) {
	const scratch = `AT_FDCWD<\x2f\x73\x63\x72\x61\x74\x63\x68>`
	tests := []struct {
		name string
		text string
		want []Step
	}{
		{"open", `11380 openat(` + scratch + `, "\x6f\x6e\x65", O_WRONLY|O_CREAT|O_CLOEXEC, 0777) = 12<\x2f\x73\x63\x72\x61\x74\x63\x68\x2f\x6f\x6e\x65>`, []Step{
			call(Call{Thread: 11380, Name: "openat", Args: []string{scratch, `"\x6f\x6e\x65"`, "O_WRONLY|O_CREAT|O_CLOEXEC", "0777"},
				Result: `12<\x2f\x73\x63\x72\x61\x74\x63\x68\x2f\x6f\x6e\x65>`, Line: 1}),
		}},
		{"failed", `11380 openat(` + scratch + `, 0x10, O_RDONLY) = -1 EFAULT (Bad address)`, []Step{
			call(Call{Thread: 11380, Name: "openat", Args: []string{scratch, "0x10", "O_RDONLY"}, Result: "-1", Errno: "EFAULT", Line: 1}),
		}},
		{"deleted", `11505 execveat(60<\x2f\x6d>(deleted), "", ["\x66\x72", "\x6d"], NULL, AT_EMPTY_PATH) = 0`, []Step{
			call(Call{Thread: 11505, Name: "execveat", Args: []string{`60<\x2f\x6d>(deleted)`, `""`, `["\x66\x72", "\x6d"]`, "NULL", "AT_EMPTY_PATH"}, Result: "0", Line: 1}),
		}},
		{"structure", `11380 openat2(23<\x2f>, "\x62", {flags=O_RDONLY|O_PATH, resolve=RESOLVE_BENEATH}, 24) = 30<\x2f\x62>`, []Step{
			call(Call{Thread: 11380, Name: "openat2", Args: []string{`23<\x2f>`, `"\x62"`, "{flags=O_RDONLY|O_PATH, resolve=RESOLVE_BENEATH}", "24"}, Result: `30<\x2f\x62>`, Line: 1}),
		}},
		{"restarted", `11380 openat(` + scratch + `, "\x66", O_WRONLY) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)`, []Step{
			call(Call{Thread: 11380, Name: "openat", Args: []string{scratch, `"\x66"`, "O_WRONLY"}, Result: "?", Errno: "ERESTARTSYS", Line: 1}),
		}},
		{"no arguments", `24    vfork() = 9 /* 10781 in strace's PID NS */`, []Step{
			call(Call{Thread: 24, Name: "vfork", Result: "9", Host: 10781, Line: 1}),
		}},
		{"one number for both", `24    vfork() = 9`, []Step{
			call(Call{Thread: 24, Name: "vfork", Result: "9", Host: 9, Line: 1}),
		}},
		{"comments among the arguments", `5 clone(child_stack=0x7f44, flags=CLONE_VM|CLONE_THREAD, parent_tid=[16 /* 11136 in strace's PID NS */], tls=0x7f) = 16 /* 11136 in strace's PID NS */`, []Step{
			call(Call{Thread: 5, Name: "clone", Args: []string{"child_stack=0x7f44", "flags=CLONE_VM|CLONE_THREAD", "parent_tid=[16 /* 11136 in strace's PID NS */]", "tls=0x7f"},
				Result: "16", Host: 11136, Line: 1}),
		}},
		{"sockets", `6 connect(4<TCP:[127.0.0.1:50000->127.0.0.1:80]>, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("\x31")}, 16) = -1 EISCONN (Transport endpoint is already connected)`, []Step{
			call(Call{Thread: 6, Name: "connect", Args: []string{"4<TCP:[127.0.0.1:50000->127.0.0.1:80]>", `{sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("\x31")}`, "16"},
				Result: "-1", Errno: "EISCONN", Line: 1}),
		}},
		{"shift", `6 memfd_create("\x78", MFD_CLOEXEC|MFD_HUGETLB|21<<MFD_HUGE_SHIFT) = 3<\x2f\x78>(deleted)`, []Step{
			call(Call{Thread: 6, Name: "memfd_create", Args: []string{`"\x78"`, "MFD_CLOEXEC|MFD_HUGETLB|21<<MFD_HUGE_SHIFT"}, Result: `3<\x2f\x78>(deleted)`, Line: 1}),
		}},
		{"interrupted lines", `10779 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
10784 openat(` + scratch + `, "\x2f", O_RDONLY <unfinished ...>
10779 <... clone resumed>, child_tidptr=0x7fed0420ea10) = 13 /* 10785 in strace's PID NS */
10784 <... openat resumed>)             = 0<\x2f>
`, []Step{
			call(Call{Thread: 10779, Name: "clone", Args: []string{"child_stack=NULL", "flags=CLONE_CHILD_SETTID|SIGCHLD", "child_tidptr=0x7fed0420ea10"}, Result: "13", Host: 10785, Line: 1}),
			call(Call{Thread: 10784, Name: "openat", Args: []string{scratch, `"\x2f"`, "O_RDONLY"}, Result: `0<\x2f>`, Line: 2}),
		}},
		{"ends", `7 +++ exited with 3 +++
8 --- SIGSEGV {si_signo=SIGSEGV, si_code=SI_USER, si_pid=19, si_uid=1000} ---
8 +++ killed by SIGSEGV (core dumped) +++
9 +++ killed by SIGRT_1 +++`, []Step{
			end(End{Thread: 7, Code: 3, Line: 1}), end(End{Thread: 8, Signal: "SIGSEGV", Core: true, Line: 3}), end(End{Thread: 9, Signal: "SIGRT_1", Line: 4}),
		}},
		{"killed in a call", `7 execve("\x2f", ["\x61"], NULL <unfinished ...>
8 openat(` + scratch + `, "\x66", O_RDONLY <unfinished ...>) = ?
7 +++ killed by SIGKILL +++`, []Step{
			call(Call{Thread: 7, Name: "execve", Args: []string{`"\x2f"`, `["\x61"]`, "NULL"}, Result: "?", Line: 1}),
			call(Call{Thread: 8, Name: "openat", Args: []string{scratch, `"\x66"`, "O_RDONLY"}, Result: "?", Line: 2}),
			end(End{Thread: 7, Signal: "SIGKILL", Line: 3}),
		}},
		{"a thread becomes the leader", `11515 execve("\x2f\x62", ["\x62\x79"], ["\x48"] <pid changed to 11514 ...>
11514 +++ superseded by execve in pid 11515 +++
11514 <... execve resumed>)             = 0`, []Step{
			call(Call{Thread: 11514, Name: "execve", Args: []string{`"\x2f\x62"`, `["\x62\x79"]`, `["\x48"]`}, Result: "0", Line: 1}),
		}},
		{"the same, with the beginning twice", `20996 execve("\x2f\x62", ["\x62\x79"], ["\x48"] <unfinished ...>
20995 execve("\x2f\x62", ["\x62\x79"], ["\x48"]20995 +++ superseded by execve in pid 20996 +++
20995 <... execve resumed>)             = 0`, []Step{
			call(Call{Thread: 20995, Name: "execve", Args: []string{`"\x2f\x62"`, `["\x62\x79"]`, `["\x48"]`}, Result: "0", Line: 1}),
		}},
		{"the same, with a number that is padded", `3041  execve("\x2f\x62", ["\x62\x79"], ["\x48"] <unfinished ...>
3037  execve("\x2f\x62", ["\x62\x79"], ["\x48"]3037  +++ superseded by execve in pid 3041 +++
3037  <... execve resumed>)             = 0`, []Step{
			call(Call{Thread: 3037, Name: "execve", Args: []string{`"\x2f\x62"`, `["\x62\x79"]`, `["\x48"]`}, Result: "0", Line: 1}),
		}},
		{"the same, with the leader in a call", `5 connect(3<TCP:[7]>, {sa_family=AF_UNSPEC}, 16 <unfinished ...>
6 execve("\x2f", ["\x62"], ["\x48"] <pid changed to 5 ...>
5 +++ superseded by execve in pid 6 +++
5 <... execve resumed>)             = 0`, []Step{
			call(Call{Thread: 5, Name: "connect", Args: []string{"3<TCP:[7]>", "{sa_family=AF_UNSPEC}", "16"}, Result: "?", Line: 1}),
			call(Call{Thread: 5, Name: "execve", Args: []string{`"\x2f"`, `["\x62"]`, `["\x48"]`}, Result: "0", Line: 2}),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read(strings.NewReader(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is not understood is not passed over.
func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no thread":              `openat("\x66", O_RDONLY) = 3`,
		"no call":                `7 what`,
		"no result":              `7 open("\x66", O_RDONLY)`,
		"empty result":           `7 open("\x66", O_RDONLY) = `,
		"error without a name":   `7 open("\x66", O_RDONLY) = -1`,
		"unknown comment":        `7 fork() = 5 /* somewhere else */`,
		"unknown words":          `7 open("\x66", O_RDONLY) = 3 and more`,
		"process without number": `7 fork() = x`,
		"open string":            `7 open("\x66, O_RDONLY) = 3`,
		"open bracket":           `7 execve("\x66", ["\x66") = 0`,
		"open comment":           `7 open("\x66" /* , O_RDONLY) = 3`,
		"open name":              `7 fchdir(3<\x66) = 0`,
		"never resumed":          "7 open(\"\\x66\" <unfinished ...>",
		"resumed, not begun":     `7 <... open resumed>) = 3`,
		"another resumed":        "7 open(\"\\x66\" <unfinished ...>\n7 <... openat resumed>) = 3",
		"two calls at a time":    "7 open(\"\\x66\" <unfinished ...>\n7 open(\"\\x66\") = 3",
		"unknown end":            `7 +++ gone +++`,
		"no code":                `7 +++ exited with x +++`,
		"superseded by nobody":   `7 +++ superseded by execve in pid 8 +++`,
		"two things on one line": "8 execve(\"\\x66\" <unfinished ...>\n7 open(\"\\x66\"7 +++ superseded by execve in pid 8 +++",
	} {
		t.Run(name, func(t *testing.T) {
			if steps, err := Read(strings.NewReader(text)); err == nil {
				t.Errorf("it was read, as %+v", steps)
			}
		})
	}
}

func TestStatesOfACall(t *testing.T) {
	for _, tt := range []struct {
		call                Call
		returned, succeeded bool
	}{
		{Call{Result: "3"}, true, true},
		{Call{Result: "-1", Errno: "ENOENT"}, true, false},
		{Call{Result: "?", Errno: "ERESTARTSYS"}, true, false},
		{Call{Result: "?"}, false, false},
	} {
		if r, s := tt.call.Returned(), tt.call.Succeeded(); r != tt.returned || s != tt.succeeded {
			t.Errorf("%+v: returned %v, succeeded %v", tt.call, r, s)
		}
	}
}

func TestString(t *testing.T) {
	for _, tt := range []struct {
		in, want string
		cut      bool
		err      error
	}{
		{`"\x61\xff\x0a\x22"`, "a\xff\n\"", false, nil},
		{`""`, "", false, nil},
		{`"\x61"...`, "a", true, nil},
		{"NULL", "", false, ErrNoString},
		{"0x10", "", false, ErrNoString},
		{`"plain"`, "", false, errText},
		{`"\x61`, "", false, errText},
	} {
		got, cut, err := String(tt.in)
		if !errors.Is(err, tt.err) || err == nil && (got != tt.want || cut != tt.cut) {
			t.Errorf("%s: %q, %v, %v", tt.in, got, cut, err)
		}
	}
}

func TestReadDescriptor(t *testing.T) {
	for in, want := range map[string]Descriptor{
		`3<\x2f\x61\x3e>`:              {Number: 3, Name: "/a>"},
		`3<\x2f\x61>(deleted)`:         {Number: 3, Name: "/a", Deleted: true},
		`AT_FDCWD<\x2f>`:               {Number: -100, Name: "/"},
		`AT_FDCWD`:                     {Number: -100},
		`4<TCP:[1->2]>`:                {Number: 4, Name: "TCP:[1->2]"},
		`13<\x70\x69\x70\x65\x3a\x5b>`: {Number: 13, Name: "pipe:["},
		`-1`:                           {Number: -1},
	} {
		if got, err := ReadDescriptor(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", `3<\x2f`, `3<\x2>`, "0x7f"} {
		if got, err := ReadDescriptor(in); err == nil {
			t.Errorf("%s was read, as %+v", in, got)
		}
	}
}

func TestStruct(t *testing.T) {
	got, err := Struct(`{sa_family=AF_INET6, sin6_port=htons(9), inet_pton(AF_INET6, "\x3a\x3a\x31", &sin6_addr), msg_iov=[{iov_base="\x78", iov_len=1}]}`)
	want := map[string]string{
		"sa_family": "AF_INET6", "sin6_port": "htons(9)", "inet_pton": `(AF_INET6, "\x3a\x3a\x31", &sin6_addr)`,
		"msg_iov": `[{iov_base="\x78", iov_len=1}]`,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	args, err := Arguments(got["inet_pton"])
	if diff := cmp.Diff([]string{"AF_INET6", `"\x3a\x3a\x31"`, "&sin6_addr"}, args); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, in := range []string{"", "NULL", "{a=1", "{a=[1}", "[a]"} {
		if got, err := Struct(in); err == nil {
			t.Errorf("%s was read, as %v", in, got)
		}
	}
}

// FuzzRead: whatever a file holds, reading it ends, and with a step for each call in it.
func FuzzRead(f *testing.F) {
	f.Add("7 open(\"\\x66\", O_RDONLY) = 3<\\x66>\n")
	f.Add("7 clone(flags=SIGCHLD <unfinished ...>\n7 <... clone resumed>) = 5 /* 9 in strace's PID NS */\n7 +++ exited with 0 +++\n")
	f.Add("8 execve(\"\\x66\" <pid changed to 7 ...>\n7 +++ superseded by execve in pid 8 +++\n7 <... execve resumed>) = 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		steps, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, s := range steps {
			if i > 0 && s.line() < steps[i-1].line() {
				t.Errorf("step %d is out of order", i)
			}
			if s.Call != nil && (s.Call.Name == "" || s.Call.Result == "") {
				t.Errorf("an incomplete call: %+v", s.Call)
			}
		}
	})
}
