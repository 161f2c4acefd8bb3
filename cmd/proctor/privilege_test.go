package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
)

// TestPrivilege looks at a box from inside as an auditor of containers does (amicontained, CDK and
// their kind), tries what one who wants out tries, and compares all of it with what is written in
// testdata/privilege.golden and, where kernels differ, below and in docs/privilege.md.
func TestPrivilege(t *testing.T) {
	s := root(t)
	code, err := os.ReadFile("testdata/privilege.py")
	if err != nil {
		t.Fatal(err)
	}
	v := s.verdict(t, "python", string(code))
	var found struct {
		Maps         map[string][][]uint64
		Init         map[string]string // of /proc/1
		Own          map[string]string // of /proc/self
		Kernel       map[string]string // of the rest of /proc, and /sys
		KernelWrites map[string]string `json:"kernel writes"`
		Mounts       []string
		UnixSockets  []string `json:"unix sockets"`
	}
	whole := map[string]any{}
	for _, into := range []any{&found, &whole} {
		if err := json.Unmarshal(v.Stdout.Bytes(), into); err != nil || v.Status != audit.StatusOK {
			t.Fatalf("%s: %s, %v\n%s", v.Status, v.Reason, err, v.Stderr.Bytes())
		}
	}
	for _, part := range []string{"maps", "init", "own", "kernel", "kernel writes"} {
		delete(whole, part)
	}
	whole["mounts"] = s.neutralMounts(t, found.Mounts)
	whole["unix sockets"] = neutralSockets(found.UnixSockets)
	golden(t, filepath.Join("testdata", "privilege.golden"), whole)

	for name, want := range map[string]int{"uid_map": 1, "gid_map": 1, "projid_map": 0} {
		m := found.Maps[name]
		if len(m) != want || want == 1 && (m[0][0] != 0 || m[0][1] < 1<<30 || m[0][1] > 1<<31-65536 || m[0][2] != 65536) {
			t.Errorf("%s: %v, want one range of 65536 in the upper half", name, m)
		}
	}
	for name, got := range found.Init {
		if !slices.Contains(ofInit, name) && got != "EACCES" && got != "EPERM" || slices.Contains(ofInit, name) && got != "read" {
			t.Errorf("/proc/1/%s: %s", name, got)
		}
	}
	for name, got := range found.Own {
		if got != "EACCES" && !slices.Contains(ofItself, name) {
			t.Errorf("/proc/self/%s: opened for writing: %s", name, got)
		}
	}
	for file, got := range found.KernelWrites {
		if file == "/proc/self/loginuid" && got == "worked" {
			continue // once, to an id of the box's range, where the supervisor was started from no login
		}
		if got != "EACCES" && got != "EROFS" && got != "EPERM" && got != "ENOENT" {
			t.Errorf("writing %s: %s", file, got)
		}
	}
	if len(found.Kernel) < 100 {
		t.Errorf("%d files of /proc and /sys", len(found.Kernel))
	}
	for file, got := range found.Kernel {
		switch got {
		case "masked", "empty directory", "EACCES", "EPERM", "ENOENT":
		case "read", "empty":
			if !slices.ContainsFunc(ofKernel, func(p string) bool {
				ok, _ := path.Match(p, file)
				return ok || strings.HasSuffix(p, "/") && strings.HasPrefix(file, p)
			}) {
				t.Errorf("%s can be read: mask it, or write down in docs/privilege.md why not", file)
			}
		default:
			t.Errorf("%s: %s", file, got)
		}
	}
}

// A run's processes go first when the host is out of memory, whatever protects the supervisor.
func TestFirstToGo(t *testing.T) {
	s := root(t)
	r := s.background(t, "echo >/scratch/x; sleep 60")
	adj, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", gatewayOf(t, s)))
	if err != nil || strings.TrimSpace(string(adj)) != "500" {
		t.Errorf("the gateway's oom_score_adj is %s, %v, want the box's 500", adj, err)
	}
	s.proctor(t, "", "kill", r.run)
	r.wait(t)
}

// ofInit is what code may read of its init: what any process of the same PID namespace may.
var ofInit = strings.Fields(`arch_status attr autogroup cgroup cmdline comm coredump_filter cpu_resctrl_groups cpuset gid_map latency limits
	loginuid mountinfo mounts net oom_adj oom_score oom_score_adj projid_map sched schedstat sessionid setgroups stat statm status task
	timens_offsets uid_map wchan`)

// ofItself is what a process may open for writing of itself.
var ofItself = strings.Fields(`autogroup clear_refs comm coredump_filter gid_map loginuid make-it-fail fail-nth mem oom_adj oom_score_adj
	projid_map sched timens_offsets timerslack_ns uid_map`)

// ofKernel is what may be read of the kernel; with "/" at its end all below it.
var ofKernel = strings.Fields(`/proc/cgroups /proc/cpuinfo /proc/execdomains /proc/filesystems /proc/loadavg /proc/meminfo /proc/stat
	/proc/uptime /proc/version /proc/version_signature /proc/vmstat /proc/sys/
	/sys/devices/system/cpu/online /sys/devices/system/cpu/possible /sys/devices/system/cpu/present`)

// neutralMounts is a box's mount table without numbers, and without masks, which kernels have
// different ones of. The two paths of the host that are known get names.
func (s *supervisor) neutralMounts(t *testing.T, mounts []string) []string {
	t.Helper()
	var list []string
	snapshot := regexp.MustCompile(`STATE/containerd/(tmp/ovl-idmapped|io\.containerd\.snapshotter\.v1\.overlayfs/snapshots/)\d+`)
	sizes := regexp.MustCompile(`(size|nr_inodes|uid|gid)=\d+k?|,?(uuid|xino|index|redirect_dir|metacopy)=\w+|,inode64`)
	for _, m := range mounts {
		f := strings.Fields(m)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+4 {
			t.Fatalf("mount table: %q", m)
		}
		if strings.HasPrefix(f[4], "/proc/") && (f[3] == "/null" || f[dash+1] == "tmpfs" && strings.HasPrefix(f[5], "ro")) {
			continue
		}
		fs := strings.Join(f[dash+1:], " ")
		if f[4] == "/.proctor/init" {
			f[3], fs = "/"+path.Base(f[3]), "(of the host)" // wherever it is installed
		}
		if f[dash+1] == "devtmpfs" || f[dash+1] == "tmpfs" && strings.HasPrefix(f[4], "/dev/") && f[4] != "/dev/shm" {
			fs = "(the host's /dev)"
		}
		line := strings.Join([]string{f[3], f[4], f[5], strings.Join(f[6:dash], " "), fs}, " ")
		line = strings.ReplaceAll(line, filepath.Join(s.dir, "state"), "STATE")
		list = append(list, sizes.ReplaceAllString(snapshot.ReplaceAllString(line, "STATE/SNAPSHOT"), "$1=N"))
	}
	return list
}

// neutralSockets is the names of sockets without the number of a descriptor.
func neutralSockets(names []string) []string {
	var list []string
	for _, name := range names {
		list = append(list, regexp.MustCompile(`/fd/\d+/`).ReplaceAllString(name, "/fd/N/"))
	}
	return list
}

func golden(t *testing.T, file string, got any) {
	t.Helper()
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(got); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("if it is meant, run the test with -update, and say why in docs/privilege.md: %s", diff)
	}
}
