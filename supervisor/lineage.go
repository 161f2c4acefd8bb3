package supervisor

import "proctor/audit"

// argvBytes bounds the command line that stands with an act, in bytes. The whole of it is in
// the exec's own event.
const argvBytes = 1024

// lineage knows what each process of a run is running, so that an act can say so by itself.
// It follows the events in their order; of a process whose exec is not in the record, and of
// the box's init, it knows nothing.
type lineage map[uint32]program

type program struct {
	start uint64 // of the process: its number can be another's by now
	file  audit.Text
	argv  []audit.Text
}

// add takes the next event and, where it is an act that is read alone, completes it.
func (l lineage) add(e *audit.Event) {
	who := e.Process
	if who == nil {
		return // the gateway's, of which nobody is known to be the cause
	}
	switch e.Kind {
	case audit.KindFork:
		if p, known := l[who.PID]; known && p.start == who.Start {
			p.start = e.Fork.Start
			l[e.Fork.Child] = p
		}
	case audit.KindExec:
		if e.Exec.Errno == "" {
			l[who.PID] = program{start: who.Start, file: e.Exec.File, argv: short(e.Exec.Argv)}
		}
	case audit.KindExit:
		delete(l, who.PID)
	case audit.KindConnect, audit.KindSend, audit.KindBind, audit.KindListen, audit.KindRefused, audit.KindQuery, audit.KindFlow:
		if p, known := l[who.PID]; known && p.start == who.Start {
			told := *who // which other events have, too
			told.File, told.Argv = p.file, p.argv
			e.Process = &told
		}
	}
}

// short keeps the front of a command line. What is cut ends in an ellipsis.
func short(argv []audit.Text) []audit.Text {
	left := argvBytes
	for i, a := range argv {
		if len(a) > left {
			return append(append([]audit.Text(nil), argv[:i]...), a[:left]+"…")
		}
		left -= len(a) + 1
		if left < 0 && i+1 < len(argv) {
			return append(append([]audit.Text(nil), argv[:i+1]...), "…")
		}
		left = max(left, 0)
	}
	return argv
}
