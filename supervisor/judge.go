package supervisor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
	"proctor/bpf"
	"proctor/supervisor/box"
)

// Exit codes of Proctor's own, as timeout(1), env(1) and shells have them.
const (
	CodeTimeout = 124
	CodeNotRun  = 125
	CodeKilled  = 137 // 128 + SIGKILL
)

// ending is everything that is known of how a run ended, whatever came first.
type ending struct {
	deadline  bool            // the wall clock ended it
	cpuTime   bool            // it had all of its processor time
	loss      *bpf.LossError  // the record can't be complete, and policy has it end for that
	uncharged *unchargedError // it held too much that counts for no limit
	canceled  error           // the caller, an operator or the supervisor's stop ended it: why
	blind     error           // sight was lost, or the record could not be written
	gateway   error           // the gateway ended, or stalled
	unsent    error           // the box did not take the program
	box       *box.Exit
	kernel    *audit.Exit
	oom       int64
	mainOOM   bool
	pidsHit   int64
	orphaned  bool                  // what keeps the box going on its behalf was killed
	lost      map[audit.Kind]uint64 // events that are not in the record
	pastLimit bool                  // the record has as many as it may
	raced     uint64                // events in it that may name the wrong file
	limits    box.Limits
	blocked   []audit.Destination

	blockedMore int64 // attempts to others
	granted     bool  // it may reach something
	profile     string
	foreign     bool // a call of another ABI ended a thread

	refused []audit.RefusedCall

	makeRoom  string // remedy, where a disk is full
	unkept    int    // outputs for which there was no room
	unkeptWhy error
}

// judge fills in the verdict's status, exit code, reason and remedy.
func (e *ending) judge(v *audit.Verdict) {
	var start *box.StartError
	switch {
	case e.blind != nil:
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "Proctor could no longer record what the code did, and ended it: " + e.blind.Error()
		v.Remedy = "run it again; if this repeats, the operator should look at the supervisor's log and `proctor doctor`"
		if noRoom(e.blind) {
			v.Reason = "Proctor could no longer record what the code did, for want of room on disk, and ended it; its record is incomplete: " + e.blind.Error()
			v.Remedy = e.makeRoom
		}
		return
	case e.gateway != nil:
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "ended because nothing answered for its network any more: " + e.gateway.Error()
		v.Remedy = "run it again; if this repeats, the operator should look at the supervisor's log"
		e.mention(v)
		return
	case e.unsent != nil && e.orphaned:
		e.endedFromOutside(v)
		return
	case e.unsent != nil:
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "the program was not started: " + e.unsent.Error()
		v.Remedy = "run it again; if this repeats, the operator should look at the supervisor's log and `proctor doctor`"
		return
	case e.deadline:
		v.Status, v.ExitCode = audit.StatusTimeout, CodeTimeout
		v.Reason = fmt.Sprintf("ended at its deadline of %s", e.limits.Timeout)
		v.Remedy = "make the work smaller, or ask for more time with --timeout"
		e.mention(v)
		return
	case e.cpuTime:
		v.Status, v.ExitCode = audit.StatusCPUTime, CodeTimeout
		v.Reason = fmt.Sprintf("ended when its processes had %s of processor time together", e.limits.CPUTime)
		v.Remedy = "make the work smaller, or ask for more with --cpu-time"
		e.mention(v)
		return
	case e.loss != nil:
		v.Status, v.ExitCode = audit.StatusAuditLimit, CodeKilled
		if e.loss.Limited() {
			v.Reason = fmt.Sprintf("ended because it did more than the %d recorded acts that it may", e.loss.Limit)
			v.Remedy = "do less with files, processes and connections, or ask for more with --audit-events"
		} else {
			v.Reason = "ended because not all that it did could be recorded: " + e.loss.Error()
			v.Remedy = "do less with files, processes and connections at one time; its output may not be relied on"
		}
		e.mention(v)
		return
	case e.uncharged != nil:
		v.Status, v.ExitCode = audit.StatusOOM, CodeKilled
		v.Reason = "ended because " + e.uncharged.Error()
		v.Remedy = "close sockets that are not needed, and read what is answered"
		e.mention(v)
		return
	case e.canceled != nil:
		v.Status, v.ExitCode = audit.StatusKilled, CodeKilled
		v.Reason = "ended before it was done: " + e.canceled.Error()
		e.mention(v)
		return
	case e.box != nil && errors.As(e.box.Err, &start):
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = start.Error()
		v.Remedy = "the image does not hold this interpreter, or it cannot run: choose another with --image, see `proctor images list`"
		return
	}

	code, signal, ok := e.exit()
	switch {
	case !ok && e.orphaned:
		e.endedFromOutside(v)
	case !ok:
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "the box ended without saying how the program did"
		v.Remedy = "run it again; if this repeats, the operator should look at the supervisor's log"
	case e.mainOOM, signal == "SIGKILL" && e.oom > 0 && e.lost[audit.KindOOM] > 0, code == CodeKilled && signal == "" && e.oom > 0:
		// The last: a shell, or whatever else ends as its child did, says that this was its work.
		v.Status, v.ExitCode, v.Signal = audit.StatusOOM, CodeKilled, signal
		v.Reason = fmt.Sprintf("the kernel ended it: it needed more than %s, which is its %s of memory and what a full scratch takes, which count together", size(e.limits.Charged()), size(e.limits.Memory))
		v.Remedy = "read the data in parts, or ask for more with --memory"
	case signal == "SIGKILL" && e.orphaned:
		e.endedFromOutside(v)
	case signal == "SIGKILL":
		v.Status, v.ExitCode, v.Signal = audit.StatusKilled, CodeKilled, signal
		v.Reason = "ended by SIGKILL from inside the run"
	case e.pidsHit > 0 && (code != 0 || signal != ""):
		v.Status, v.ExitCode, v.Signal = audit.StatusPIDs, code, signal
		v.Reason = fmt.Sprintf("it failed after %d attempts to start a process or thread beyond its limit of %d", e.pidsHit, e.limits.Processes)
		v.Remedy = "use fewer workers, or ask for more with --pids"
	case signal != "":
		v.Status, v.ExitCode, v.Signal = audit.StatusExit, code, signal
		v.Reason = "ended by " + signal
		if signal == "SIGSYS" && e.foreign {
			v.Reason += ": it made a system call of an ABI that boxes do not have"
		}
	case code != 0:
		v.Status, v.ExitCode = audit.StatusExit, code
		v.Reason = fmt.Sprintf("the program ended with code %d", code)
	case e.unkept > 0:
		// No success: what it was to leave is not there.
		v.Status, v.ExitCode = audit.StatusError, CodeNotRun
		v.Reason = "the program ended with code 0"
	default:
		v.Status = audit.StatusOK
		v.Reason = "the program ended with code 0"
	}
	e.mention(v)
}

// endedFromOutside fills in the verdict of a run whose shim was killed, before or after it began.
func (e *ending) endedFromOutside(v *audit.Verdict) {
	v.Status, v.ExitCode = audit.StatusError, CodeNotRun
	v.Reason = "ended from outside: the process that keeps its container (containerd's shim) was killed, and containerd ended the rest"
	v.Remedy = "run it again; if this repeats, the operator should look at the supervisor's log"
}

// mention adds what else the caller should know, so that a denial does not look like an
// outage.
func (e *ending) mention(v *audit.Verdict) {
	if e.unkept > 0 {
		v.Reason += fmt.Sprintf("; there was no room on disk to keep %d of its outputs: %v", e.unkept, e.unkeptWhy)
		v.Remedy = e.makeRoom
	}
	if len(e.lost) > 0 && e.loss == nil {
		var n uint64
		for kind, k := range e.lost {
			if kind != audit.KindUnseen {
				n += k
			}
		}
		switch {
		case n > 0 && e.pastLimit:
			v.Reason += fmt.Sprintf("; %d of its acts are not in its record, which may have %d (--audit-events)", n, e.limits.AuditEvents)
		case n > 0:
			v.Reason += fmt.Sprintf("; %d of its acts came too fast to be recorded", n)
		}
		if net := e.lost[audit.KindConnect] + e.lost[audit.KindSend]; net > 0 {
			v.Reason += fmt.Sprintf(", %d connection attempts among them", net)
		}
		if k := e.lost[audit.KindUnseen]; k > 0 {
			v.Reason += fmt.Sprintf("; %d times the kernel did not look at what was done, here or in another run", k)
		}
	}
	if v.Egress.Findings > 0 {
		v.Reason += fmt.Sprintf("; the kernel and the gateway do not agree on %d of its destinations: see the record", v.Egress.Findings)
	}
	if e.raced > 0 && e.loss == nil {
		v.Reason += fmt.Sprintf("; %d of its opens are recorded with a file that may be another", e.raced)
	}
	if e.oom > 0 && !e.mainOOM && v.Status != audit.StatusOOM {
		v.Reason += fmt.Sprintf("; the kernel ended %d of its processes for memory", e.oom)
	}
	if len(e.refused) > 0 && v.Status != audit.StatusOK {
		v.Reason += "; the box refused it " + calls(e.refused)
	}
	if len(e.blocked) > 0 {
		n := e.blockedMore
		for _, d := range e.blocked {
			n += d.Count
		}
		v.Reason += fmt.Sprintf("; policy refused %d connection attempts (%s)", n, e.blocked[0].Rule)
		if v.Remedy == "" {
			v.Remedy = remedyForAll(e.blocked)
		}
		if v.Remedy == "" && !e.granted {
			v.Remedy = "no network is granted to this run: pass data with --input, use what the image holds (`proctor images list`), or ask the operator"
		} else if v.Remedy == "" {
			v.Remedy = "keep to what is granted (`proctor profile show " + e.profile + "`), or ask the operator to grant more"
		}
	}
}

// calls names a few of them.
func calls(refused []audit.RefusedCall) string {
	const most = 3
	var names []string
	for i, r := range refused {
		if i == most {
			return fmt.Sprintf("%s and %d other system calls", strings.Join(names, ", "), len(refused)-most)
		}
		names = append(names, r.Call)
	}
	return "the system calls " + strings.Join(names, ", ")
}

// exit is the main process's end: the kernel's word, or where its record does not hold it,
// the box's.
func (e *ending) exit() (code int, signal string, ok bool) {
	switch {
	case e.kernel != nil && e.kernel.Signal != "":
		return 128 + signalNumber(e.kernel.Signal), e.kernel.Signal, true
	case e.kernel != nil:
		return e.kernel.Code, "", true
	case e.box != nil && e.box.Signal != 0:
		return 128 + e.box.Signal, signalName(e.box.Signal), true
	case e.box != nil:
		return e.box.Code, "", true
	}
	return 0, "", false
}

// realtime is SIGRTMIN as C libraries count: the kernel's first two are theirs.
const realtime = 34

func signalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	if n >= realtime {
		return fmt.Sprintf("SIGRTMIN+%d", n-realtime)
	}
	return fmt.Sprintf("signal %d", n)
}

// signalNumber is the inverse of signalName, which the record's names follow, too.
func signalNumber(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	var n int
	if _, err := fmt.Sscanf(name, "SIGRTMIN+%d", &n); err == nil {
		return realtime + n
	}
	_, _ = fmt.Sscanf(name, "signal %d", &n)
	return n
}

func size(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

func milliseconds(d time.Duration) int64 { return int64(d.Round(time.Millisecond) / time.Millisecond) }
