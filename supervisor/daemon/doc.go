// Package daemon gives the supervisor its containerd: a private one that it starts,
// watches, restarts and stops, or one of the operator's that it only checks.
//
// # Contract
//
// [Start] returns once containerd answers on its socket. From then on the [Daemon]
// restarts it whenever it dies, waiting longer each time, until [Daemon.Stop].
// Whoever called Start calls Stop, last of all: after every client made by
// [Daemon.Client] is closed by the one who asked for it.
//
// Running containers are not the daemon's. Each has a shim that outlives containerd,
// whether it crashes or is stopped, and that the next containerd with the same State
// takes up again. Ending tasks is the supervisor's work, before Stop.
//
// # One supervisor per directory pair
//
// Start holds a lock on Root and on State until Stop; a second Start with either
// directory fails with [ErrInUse]. Daemons with different directories share nothing:
// sockets, shim sockets, runc's state and temporary files are all below the two
// directories, and nothing listens on the network.
//
// # When the supervisor itself is killed
//
// The kernel sends containerd SIGTERM when the thread that started it goes (which is
// why that goroutine keeps its thread), so that no containerd is left without anyone
// to watch it. Should one be left all the same, for instance hung, the next Start
// finds it by its pid file, checks that the process is the one that was written down
// (start time, executable, configuration argument), and ends it. It is ended rather
// than adopted: a process that is not our child can't be waited for, its log pipe
// has lost its reader, and it may be an older binary. Its shims, and with them the
// running containers, stay.
//
// # Privileges
//
// containerd runs as root with the environment reduced to PATH, so that no secret of
// the supervisor's environment reaches containerd, the shims or runc. Its OOM score
// is inherited, never lowered, because hosts without CAP_SYS_RESOURCE refuse that.
// The shim adds one to it and containers inherit that, so a container's own
// oomScoreAdj must not be below the supervisor's.
package daemon
