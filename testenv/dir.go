package testenv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long teardown may go on after the call that began it returned.
const patience = 30 * time.Second

// Dir makes a directory for one test and removes it at the test's end. Its path is
// short, as unix sockets have to lie below it, and every user may pass through it, as
// the root of a container's user namespace has to. A mount left below it fails the
// test, and is undone first: removal must not follow it to what is mounted.
func Dir(t testing.TB) string {
	t.Helper()
	return newDir(t, patience)
}

func newDir(t testing.TB, wait time.Duration) string {
	t.Helper()
	dir := filepath.Join("/tmp", fmt.Sprintf("pt%d-%s", os.Getpid(), randomHex(t)))
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left := waitNone(wait, func() []string { return mountsBelow(t, dir) })
		for _, point := range left {
			t.Errorf("left behind: mount %s", point)
		}
		slices.Reverse(left)
		for _, point := range left {
			if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				t.Errorf("unmount %s: %v; %s is not removed", point, err, dir)
				return
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's directory: %v", err)
		}
	})
	return dir
}

// Cgroup names a parent cgroup for one test's containers, without a leading slash: the
// same in every hierarchy. It is not made here. At the test's end the empty parent is
// removed wherever somebody made it; one that isn't empty fails the test.
func Cgroup(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("proctor-test-%d-%s", os.Getpid(), randomHex(t))
	t.Cleanup(func() {
		left := waitNone(patience, func() (left []string) {
			for _, mount := range cgroupMounts(t, "cgroup", "cgroup2") {
				path := filepath.Join(mount, name)
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					left = append(left, subdirectories(path)...)
				}
			}
			return left
		})
		for _, path := range left {
			t.Errorf("left behind: cgroup %s", path)
		}
	})
	return name
}

// Logger writes to the test's output. What logs to it must have ended when the test
// does.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// Own makes LeakCheck count whatever has one of the names in its path, from now on, in
// this process: for what a test makes under a name that Dir and Cgroup didn't give. It
// may be called after LeakCheck.
func Own(names ...string) {
	owned.Lock()
	defer owned.Unlock()
	owned.names = append(owned.names, names...)
}

var owned struct {
	sync.Mutex
	names []string
}

// The marks that Dir and Cgroup give their names.
var mark = regexp.MustCompile(`\b(?:pt|proctor-test-)(\d+)-[0-9a-f]{6}\b`)

// ours reports whether something on the host with this name is for LeakCheck to judge.
func ours(name string) bool {
	if m := mark.FindStringSubmatch(name); m != nil {
		return m[1] == strconv.Itoa(os.Getpid())
	}
	owned.Lock()
	defer owned.Unlock()
	return slices.ContainsFunc(owned.names, func(n string) bool { return strings.Contains(name, n) }) ||
		os.Getenv("PROCTOR_LEAKCHECK") == "host" && strings.Contains(name, "proctor")
}

func randomHex(t testing.TB) string {
	t.Helper()
	b := make([]byte, 3)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// waitNone asks until nothing is left or the time is up, and returns what is left.
func waitNone(wait time.Duration, list func() []string) []string {
	deadline := time.Now().Add(wait)
	for {
		left := list()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cleanupContext is for calls in cleanups, when the test's own context has ended.
func cleanupContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
