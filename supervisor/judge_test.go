package supervisor

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/box"
)

var judged = box.Limits{Timeout: 90 * time.Second, Memory: 512 << 20, CPUTime: 3 * time.Second, Processes: 64}

func TestJudge(t *testing.T) {
	blocked := []audit.Destination{{Count: 3, Rule: "no network granted"}, {Count: 2, Rule: "no network granted"}}
	notStarted := &box.StartError{Step: "exec", Errno: syscall.ENOENT, Path: "/usr/bin/python3"}
	for _, test := range []struct {
		name   string
		ending ending
		status audit.Status
		code   int
		signal string
		reason string // part of it
		remedy string // part of it; empty: none
	}{
		{"ok", ending{kernel: &audit.Exit{}, box: &box.Exit{}}, audit.StatusOK, 0, "", "the program ended with code 0", ""},
		{"exit", ending{kernel: &audit.Exit{Code: 3}}, audit.StatusExit, 3, "", "the program ended with code 3", ""},
		{"exit, by the box's word", ending{box: &box.Exit{Code: 4}}, audit.StatusExit, 4, "", "code 4", ""},
		{"the kernel's word counts", ending{kernel: &audit.Exit{Code: 5}, box: &box.Exit{}}, audit.StatusExit, 5, "", "code 5", ""},
		{"code 137 by itself", ending{kernel: &audit.Exit{Code: 137}}, audit.StatusExit, 137, "", "code 137", ""},
		{"code 124 by itself", ending{kernel: &audit.Exit{Code: 124}}, audit.StatusExit, 124, "", "code 124", ""},
		{"signal", ending{kernel: &audit.Exit{Signal: "SIGSEGV"}}, audit.StatusExit, 139, "SIGSEGV", "ended by SIGSEGV", ""},
		{"signal, by the box's word", ending{box: &box.Exit{Signal: 11}}, audit.StatusExit, 139, "SIGSEGV", "ended by SIGSEGV", ""},
		{"real-time signal", ending{kernel: &audit.Exit{Signal: "SIGRTMIN+2"}}, audit.StatusExit, 128 + 36, "SIGRTMIN+2", "ended by SIGRTMIN+2", ""},
		{"real-time signal, by the box's word", ending{box: &box.Exit{Signal: 36}}, audit.StatusExit, 128 + 36, "SIGRTMIN+2", "ended by SIGRTMIN+2", ""},
		{"wrong ABI", ending{kernel: &audit.Exit{Signal: "SIGSYS"}, foreign: true}, audit.StatusExit, 159, "SIGSYS", "a system call of an ABI", ""},
		{"SIGSYS of its own", ending{kernel: &audit.Exit{Signal: "SIGSYS"}}, audit.StatusExit, 159, "SIGSYS", "ended by SIGSYS", ""},
		{"more places than are listed", ending{kernel: &audit.Exit{}, blocked: blocked, blockedMore: 100}, audit.StatusOK, 0, "", "policy refused 105 connection attempts", "--input"},
		{"killed from inside", ending{kernel: &audit.Exit{Signal: "SIGKILL"}}, audit.StatusKilled, 137, "SIGKILL", "SIGKILL from inside the run", ""},
		{"oom", ending{kernel: &audit.Exit{Signal: "SIGKILL"}, oom: 1, mainOOM: true, limits: judged}, audit.StatusOOM, 137, "SIGKILL", "which is its 512 MiB of memory", "--memory"},
		{"oom before pids", ending{kernel: &audit.Exit{Signal: "SIGKILL"}, oom: 1, mainOOM: true, pidsHit: 9}, audit.StatusOOM, 137, "SIGKILL", "memory", "--memory"},
		{"oom of a child", ending{kernel: &audit.Exit{Code: 1}, oom: 2}, audit.StatusExit, 1, "", "; the kernel ended 2 of its processes for memory", ""},
		{"oom of a child, survived", ending{kernel: &audit.Exit{}, oom: 1}, audit.StatusOK, 0, "", "; the kernel ended 1 of its processes for memory", ""},
		{"oom of a child, whose end is the program's", ending{kernel: &audit.Exit{Code: 137}, oom: 1, limits: judged}, audit.StatusOOM, 137, "", "which is its 512 MiB of memory", "--memory"},
		{"its keeper was killed", ending{kernel: &audit.Exit{Signal: "SIGKILL"}, orphaned: true}, audit.StatusError, 125, "", "ended from outside", "run it again"},
		{"its keeper was killed, and nothing of it is known", ending{orphaned: true}, audit.StatusError, 125, "", "ended from outside", "run it again"},
		{"its keeper was killed before it began", ending{unsent: errors.New("broken pipe"), orphaned: true}, audit.StatusError, 125, "", "ended from outside", "run it again"},
		{"its keeper was killed, after it ran out of memory", ending{kernel: &audit.Exit{Signal: "SIGKILL"}, oom: 1, mainOOM: true, orphaned: true}, audit.StatusOOM, 137, "SIGKILL", "memory", "--memory"},
		{"its keeper was killed, and it was done", ending{kernel: &audit.Exit{Code: 3}, orphaned: true}, audit.StatusExit, 3, "", "code 3", ""},
		{"its keeper was killed, and its time was over", ending{deadline: true, kernel: &audit.Exit{Signal: "SIGKILL"}, orphaned: true}, audit.StatusTimeout, 124, "", "deadline", "--timeout"},
		{"pids", ending{kernel: &audit.Exit{Code: 1}, pidsHit: 7, limits: judged}, audit.StatusPIDs, 1, "", "7 attempts to start a process or thread beyond its limit of 64", "--pids"},
		{"pids, by a signal", ending{kernel: &audit.Exit{Signal: "SIGABRT"}, pidsHit: 1}, audit.StatusPIDs, 134, "SIGABRT", "1 attempts", "--pids"},
		{"pids, survived", ending{kernel: &audit.Exit{}, pidsHit: 7}, audit.StatusOK, 0, "", "code 0", ""},
		{"timeout", ending{deadline: true, limits: judged, kernel: &audit.Exit{Signal: "SIGKILL"}}, audit.StatusTimeout, 124, "", "deadline of 1m30s", "--timeout"},
		{"timeout before oom", ending{deadline: true, kernel: &audit.Exit{Signal: "SIGKILL"}, oom: 1, mainOOM: true}, audit.StatusTimeout, 124, "", "deadline", "--timeout"},
		{"timeout of a program that tried to connect", ending{deadline: true, blocked: blocked}, audit.StatusTimeout, 124, "", "; policy refused 5 connection attempts (no network granted)", "--timeout"},
		{"canceled", ending{canceled: errors.New("its caller went away"), kernel: &audit.Exit{Signal: "SIGKILL"}}, audit.StatusKilled, 137, "", "ended before it was done: its caller went away", ""},
		{"processor time", ending{cpuTime: true, limits: judged, kernel: &audit.Exit{Signal: "SIGKILL"}}, audit.StatusCPUTime, 124, "", "had 3s of processor time together", "--cpu-time"},
		{"timeout before cancel", ending{deadline: true, canceled: errors.New("x")}, audit.StatusTimeout, 124, "", "deadline", "--timeout"},
		{"blind", ending{blind: errors.New("ring is gone"), deadline: true, canceled: errors.New("x"), kernel: &audit.Exit{}}, audit.StatusError, 125, "", "could no longer record what the code did, and ended it: ring is gone", "proctor doctor"},
		{"record too long", ending{loss: &bpf.LossError{Counts: audit.Counts{Events: 101, Lost: 1}, Limit: 100, Charged: 101}, lost: map[audit.Kind]uint64{audit.KindOpen: 1}, canceled: errors.New("x")},
			audit.StatusAuditLimit, 137, "", "more than the 100 recorded acts that it may", "--audit-events"},
		{"record with holes", ending{loss: &bpf.LossError{Counts: audit.Counts{Events: 90, Lost: 2}, Limit: 100}, kernel: &audit.Exit{}, blocked: blocked},
			audit.StatusAuditLimit, 137, "", "2 of 90 events lost; policy refused 5", "may not be relied on"},
		{"record in doubt", ending{loss: &bpf.LossError{Counts: audit.Counts{Events: 90, Raced: 3}}},
			audit.StatusAuditLimit, 137, "", "3 of 90 events may name the wrong file", "may not be relied on"},
		{"record in doubt, by policy", ending{raced: 2, kernel: &audit.Exit{}}, audit.StatusOK, 0, "", "code 0; 2 of its opens are recorded with a file that may be another", ""},
		{"timeout before a loss", ending{loss: &bpf.LossError{Counts: audit.Counts{Lost: 1}}, deadline: true}, audit.StatusTimeout, 124, "", "deadline", "--timeout"},
		{"refused calls", ending{kernel: &audit.Exit{Code: 1}, refused: []audit.RefusedCall{{Call: "bpf", Count: 3}, {Call: "ptrace", Count: 1}}},
			audit.StatusExit, 1, "", "code 1; the box refused it the system calls bpf, ptrace", ""},
		{"many refused calls", ending{kernel: &audit.Exit{Code: 1}, refused: make([]audit.RefusedCall, 9)},
			audit.StatusExit, 1, "", " and 6 other system calls", ""},
		{"refused calls, and ok", ending{kernel: &audit.Exit{}, refused: []audit.RefusedCall{{Call: "io_uring_setup", Count: 1}}}, audit.StatusOK, 0, "", "ended with code 0", ""},
		{"unsent", ending{unsent: errors.New("broken pipe"), deadline: true}, audit.StatusError, 125, "", "the program was not started: broken pipe", "again"},
		{"blind before unsent", ending{unsent: errors.New("broken pipe"), blind: errors.New("ring")}, audit.StatusError, 125, "", "ring", "again"},
		{"interpreter missing", ending{box: &box.Exit{Err: notStarted}, kernel: &audit.Exit{Code: 125}}, audit.StatusError, 125, "", `start "/usr/bin/python3": exec: no such file or directory`, "proctor images list"},
		{"timeout before a failed start", ending{deadline: true, box: &box.Exit{Err: notStarted}}, audit.StatusTimeout, 124, "", "deadline", "--timeout"},
		{"silent box", ending{}, audit.StatusError, 125, "", "without saying how", "supervisor's log"},
		{"blocked and ok", ending{kernel: &audit.Exit{}, blocked: blocked}, audit.StatusOK, 0, "", "code 0; policy refused 5 connection attempts (no network granted)", "--input"},
		{"blocked and failed", ending{kernel: &audit.Exit{Code: 1}, blocked: blocked[:1]}, audit.StatusExit, 1, "", "policy refused 3 connection attempts", "--input"},
		{"blocked and oom", ending{kernel: &audit.Exit{Signal: "SIGKILL"}, mainOOM: true, oom: 1, blocked: blocked}, audit.StatusOOM, 137, "SIGKILL", "policy refused 5", "--memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var v audit.Verdict
			test.ending.judge(&v)
			if v.Status != test.status || v.ExitCode != test.code || v.Signal != test.signal {
				t.Errorf("got %s, code %d, signal %q; want %s, %d, %q", v.Status, v.ExitCode, v.Signal, test.status, test.code, test.signal)
			}
			if !strings.Contains(v.Reason, test.reason) {
				t.Errorf("reason %q, want it to say %q", v.Reason, test.reason)
			}
			if test.remedy == "" && v.Remedy != "" || !strings.Contains(v.Remedy, test.remedy) {
				t.Errorf("remedy %q, want %q", v.Remedy, test.remedy)
			}
			if (test.ending.oom == 0 || test.ending.mainOOM) && strings.Contains(v.Reason, "processes for memory") {
				t.Errorf("reason %q speaks of memory", v.Reason)
			}
			if strings.ContainsAny(v.Reason, "\n") {
				t.Errorf("reason of several lines: %q", v.Reason)
			}
		})
	}
}

func TestSignalNames(t *testing.T) {
	for n := 1; n <= 64; n++ {
		if got := signalNumber(signalName(n)); got != n {
			t.Errorf("signal %d is named %q, which is %d", n, signalName(n), got)
		}
	}
	if signalName(int(unix.SIGKILL)) != "SIGKILL" || signalName(33) != "signal 33" || signalName(34) != "SIGRTMIN+0" {
		t.Errorf("%s, %s, %s", signalName(9), signalName(33), signalName(34))
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		1 << 30: "1 GiB", 3 << 30: "3 GiB", 3 << 29: "1536 MiB", 16 << 20: "16 MiB", 1<<20 - 1: "1048575 bytes", 0: "0 bytes",
	} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
