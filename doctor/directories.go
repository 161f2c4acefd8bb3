package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"proctor/supervisor/room"
)

const (
	// An image with its unpacked layers takes about 1 GiB.
	leastFree, wantedFree = 1 << 30, 5 << 30
	leastInodes           = 50_000
	maxSocketPath         = 107 // bytes of a unix socket's path
	// What containerd puts below the run directory that is longest: the socket of a
	// shim, named by 64 hexadecimal digits.
	shimSocketBelow = len("/containerd/s/") + 64
)

func checkDirectories(_ context.Context, opts Options) []Check {
	var checks []Check
	if opts.StateDir != "" {
		checks = append(checks, checkSpace(opts.StateDir))
	}
	if opts.RunDir != "" {
		checks = append(checks, checkRunDir(opts.RunDir))
	}
	return append(checks, checkRoom(opts.Room)...)
}

// checkRoom checks what the supervisor looks at before each run. Of places on one file system
// the first is named, and those with a problem of their own.
func checkRoom(places []room.Place) []Check {
	var checks []Check
	for i := range places {
		places[i].Dir = existing(places[i].Dir)
	}
	for _, s := range room.New(slog.New(slog.DiscardHandler), places...).States() {
		name := "room for runs"
		switch {
		case s.Problem == "":
			checks = append(checks, ok(name, fmt.Sprintf("%s: %s free in %s, runs begin with %s", s.Name, room.Size(s.Free), s.Dir, room.Size(s.Least))))
		case os.Geteuid() != 0:
			checks = append(checks, NeedsRoot(name))
		default:
			checks = append(checks, Check{name, Fail, "NO NEW RUNS: " + s.Problem, s.Fix})
		}
	}
	return checks
}

func checkSpace(dir string) Check {
	const name = "disk space"
	var st unix.Statfs_t
	if err := unix.Statfs(existing(dir), &st); err != nil {
		return outcome(name, "", fmt.Errorf("%s: %w", dir, err), "give another --state-dir")
	}
	return judgeSpace(name, dir, st.Bavail*uint64(st.Bsize), st.Files, st.Ffree)
}

// judgeSpace judges free bytes and inodes; some file systems count no inodes.
func judgeSpace(name, dir string, free, inodes, freeInodes uint64) Check {
	detail := fmt.Sprintf("%.1f GiB free for %s", float64(free)/(1<<30), dir)
	const fix = "free some space, or give a --state-dir on a larger disk"
	switch {
	case free < leastFree:
		return Check{name, Fail, detail + ": too little for an image", fix}
	case inodes > 0 && freeInodes < leastInodes:
		return Check{name, Fail, fmt.Sprintf("%d inodes free for %s: too few for an image", freeInodes, dir), fix}
	case free < wantedFree:
		return Check{name, Warn, detail + ": enough for a few images", fix}
	}
	return ok(name, detail)
}

// checkRunDir checks that sockets can be made in the run directory, under the longest
// names that there will be.
func checkRunDir(dir string) Check {
	const name = "run directory"
	if most := maxSocketPath - shimSocketBelow; len(dir) > most {
		return Check{name, Fail, fmt.Sprintf("%s has %d bytes, at most %d leave room for sockets below it", dir, len(dir), most), "give a shorter --run-dir, such as /run/proctor"}
	}
	path := filepath.Join(existing(dir), fmt.Sprintf(".proctor-doctor-%d", os.Getpid()))
	l, err := net.Listen("unix", path) // removes the socket when closed
	if err != nil {
		return outcome(name, "", fmt.Errorf("%s: %w", dir, err), "make it writable for root, on a local file system")
	}
	l.Close()
	return ok(name, "sockets can be made in "+dir)
}

func checkSupervisor(ctx context.Context, opts Options) []Check {
	const name = "supervisor"
	if opts.Socket == "" {
		return nil
	}
	if n := len(opts.Socket); n > maxSocketPath {
		return []Check{{name, Fail, fmt.Sprintf("socket path %s has %d bytes, at most %d are possible", opts.Socket, n, maxSocketPath), "give a shorter --socket"}}
	}
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(ctx, "unix", opts.Socket)
	switch {
	case err == nil:
		conn.Close()
		return []Check{ok(name, "listens on "+opts.Socket)}
	case errors.Is(err, fs.ErrPermission):
		return []Check{{name, Warn, opts.Socket + ": permission denied", "use sudo, or join the group that the socket belongs to"}}
	case errors.Is(err, fs.ErrNotExist):
		return []Check{{name, Warn, "not running: no socket at " + opts.Socket, "start it: sudo proctor serve"}}
	case errors.Is(err, unix.ECONNREFUSED):
		return []Check{{name, Warn, "not running: it left its socket at " + opts.Socket, "start it: sudo proctor serve"}}
	}
	return []Check{{name, Fail, err.Error(), "look at its log, or restart it"}}
}
