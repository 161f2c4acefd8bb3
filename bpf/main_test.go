package bpf_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"proctor/bpf"
	"proctor/supervisor/container"
	"proctor/testenv"
)

func observed(traced []string) []string { return bpf.Exits(container.Permitted(), traced) }

// actVariable names what this binary is to do instead of testing: the root tests start
// it again inside a run.
const actVariable = "PROCTOR_BPF_ACT"

// acts are what can be done inside a run, by name. Arguments are the process's own.
var acts = map[string]func(args []string) error{
	"files":    actFiles,
	"deep":     actDeep,
	"mounts":   actMounts,
	"thread":   actThread,
	"families": actFamilies,
	"network":  actNetwork,
	"connect":  actConnect,
	"backstop": actBackstop,
	"status":   actStatus,
	"eat":      actEat,
	"open":     actOpen,
	"measure":  actMeasure,
	"flood":    actFlood,
	"reach":    actReach,
	"changes":  actChanges,
	"repeat":   actRepeat,
	"nap":      actNap,
	"spray":    actSpray,
	"rename":   actRename,
	"forks":    actForks,
	"unmap":    actUnmap,
	"nonsense": actNonsense,
	"swap":     actSwap,
	"swapbind": actSwapBind,
	"inherit":  actInherit,
	"heir":     actHeir,
	"threads":  actThreads,
	"bind":     actBind,
	"turns":    actTakeTurns,
	"handover": actHandOver,
	"idle":     actIdle,
	"reuse":    actReuse,
}

func TestMain(m *testing.M) {
	name, asked := os.LookupEnv(actVariable)
	if !asked {
		// A benchmark wants them to be free when nothing is attached.
		if flag.Parse(); flag.Lookup("test.bench").Value.String() == "" {
			if err := testenv.HoldTracepoints(observed); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	act, known := acts[name]
	if !known {
		fmt.Fprintf(os.Stderr, "no act %q\n", name)
		os.Exit(2)
	}
	if err := act(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// The main goroutine of an act stays on the process's first thread.
func init() {
	if _, asked := os.LookupEnv(actVariable); asked {
		runtime.LockOSThread()
	}
}
