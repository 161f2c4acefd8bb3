package main_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"proctor/api"
	"proctor/audit"
	"proctor/testenv"
)

// refusal is a command line that is refused with one line, which names the value, the rule
// and what to do. It is run in a directory with the files of refusalFiles; $DIR stands for it.
type refusal struct {
	args  []string
	stdin string
	code  int
	line  string // without "proctor: "
}

// sh is a run of a good program with something wrong about it.
func sh(flags ...string) []string { return append(append([]string{"run"}, flags...), "ok.sh") }

const (
	readable = ": name a file that you can read"
	plain    = ": give it a plain name with --input PATH:NAME"
	bare     = ": see `proctor images list`"
	less     = ": ask for less, or have the operator raise it under limits.ceiling of profile offline, or in proctor.yaml"
	sensible = ": give a sensible value, or leave the flag out for the default"
	writable = ": name one that you can write to"
)

var refusals = map[string]refusal{
	"no program":            {args: []string{"run"}, code: 2, line: "no program: name a file, or - for stdin: see `proctor run --help`"},
	"code missing":          {args: []string{"run", "none.sh"}, code: 125, line: `code "none.sh": no such file or directory` + readable},
	"code empty":            {args: []string{"run", "empty.sh"}, code: 125, line: `code "empty.sh": is empty: there must be a program in it`},
	"stdin empty":           {args: []string{"run", "--lang", "sh", "-"}, code: 125, line: `code "-": is empty: there must be a program in it`},
	"code too large":        {args: []string{"run", "large.sh"}, code: 125, line: `code "large.sh": has more than 8 MiB: pass data with --input, not in the code`},
	"stdin too large":       {args: []string{"run", "--lang", "sh", "-"}, stdin: strings.Repeat("#", 8<<20+1), code: 125, line: `code "-": has more than 8 MiB: pass data with --input, not in the code`},
	"code directory":        {args: []string{"run", "dir.sh"}, code: 125, line: `code "dir.sh": is a directory: name a file`},
	"code FIFO":             {args: []string{"run", "fifo.sh"}, code: 125, line: `code "fifo.sh": is not a regular file: name one`},
	"code device":           {args: []string{"run", "--lang", "sh", "/dev/zero"}, code: 125, line: `code "/dev/zero": is not a regular file: name one`},
	"code name with ANSI":   {args: []string{"run", "\x1b[31m.sh"}, code: 125, line: `code "\x1b[31m.sh": no such file or directory` + readable},
	"stdin of no language":  {args: []string{"run", "-"}, code: 2, line: "code from stdin: say what it is with --lang, such as --lang python"},
	"ending of no language": {args: []string{"run", "in.txt"}, code: 2, line: `"in.txt": its ending does not tell the language: say it with --lang, such as --lang python`},
	"language unknown":      {args: sh("--lang", "cobol"), code: 125, line: `language "cobol": no image has an interpreter for it, there is bash, python, sh: choose one of these with --lang`},
	"language not in image": {args: sh("--lang", "python", "--image", "shell"), code: 125, line: `language "python": image shell has interpreters for bash, sh: use one of these, or another image` + bare},
	"language empty":        {args: sh("--lang", ""), code: 2, line: `--lang "": is empty: give a value, or leave the flag out`},
	"argument without --":   {args: []string{"run", "ok.sh", "x"}, code: 2, line: `"x" stands after the program: flags go before it, the program's own arguments after --`},
	"flag after program":    {args: []string{"run", "ok.sh", "--json"}, code: 2, line: `"--json" stands after the program: flags go before it, the program's own arguments after --`},

	"image unknown":       {args: sh("--image", "nope"), code: 125, line: "image is not in the lock file: \"nope\" (locked: python-data, shell): use one of these, or add it with `proctor images build nope`" + bare},
	"image with registry": {args: sh("--image", "docker.io/library/debian"), code: 125, line: `image "docker.io/library/debian" is a path or registry reference: images are built from recipes, use a bare name from the lock file` + bare},
	"image with tag":      {args: sh("--image", "shell:latest"), code: 125, line: `image "shell:latest" has a tag: versions are pinned in the lock file, use the bare name "shell"` + bare},
	"image with digest":   {args: sh("--image", "shell@sha256:00"), code: 125, line: `image "shell@sha256:00" has a digest: digests are pinned in the lock file, use the bare name "shell"` + bare},
	"image upper case":    {args: sh("--image", "Shell"), code: 125, line: `image name "Shell" is not valid: use lower-case letters, digits, ".", "_" and "-", first a letter or digit, at most 64 characters` + bare},
	"image with ..":       {args: sh("--image", "../shell"), code: 125, line: `image "../shell" is a path or registry reference: images are built from recipes, use a bare name from the lock file` + bare},
	"image empty":         {args: sh("--image", ""), code: 2, line: `--image "": is empty: give a value, or leave the flag out`},

	"input missing":           {args: sh("--input", "none"), code: 125, line: `input "none": no such file or directory` + readable},
	"input empty":             {args: sh("--input", ""), code: 125, line: `input "": no such file or directory` + readable},
	"input directory":         {args: sh("--input", "dir.sh"), code: 125, line: `input "dir.sh": no file is in it: name one that has some`},
	"input FIFO":              {args: sh("--input", "fifo.sh"), code: 125, line: `input "fifo.sh": is not a regular file: name one`},
	"input device":            {args: sh("--input", "/dev/zero"), code: 125, line: `input "/dev/zero": is not a regular file: name one`},
	"input socket":            {args: sh("--input", "socket"), code: 125, line: `input "socket": is not a regular file: name one`},
	"input link loop":         {args: sh("--input", "loop"), code: 125, line: `input "loop": too many levels of symbolic links` + readable},
	"input twice":             {args: sh("--input", "in.txt", "-i", "a,b.txt:in.txt"), code: 2, line: "Cannot use two forms of the same flag: i input: see `proctor run --help`"},
	"input of one name":       {args: sh("--input", "in.txt", "--input", "a,b.txt:in.txt"), code: 125, line: `input name "in.txt": given twice: give one of them another name with --input PATH:NAME`},
	"input name with //":      {args: sh("--input", "in.txt:a//b"), code: 125, line: `input name "a//b": its element "" is empty` + plain},
	"input name absolute":     {args: sh("--input", "in.txt:/etc/passwd"), code: 125, line: `input name "/etc/passwd": its element "" is empty` + plain},
	"input name ..":           {args: sh("--input", "in.txt:.."), code: 125, line: `input name "..": names a directory` + plain},
	"input name .":            {args: sh("--input", "in.txt:."), code: 125, line: `input name ".": names a directory` + plain},
	"input name ../x":         {args: sh("--input", "in.txt:../x"), code: 125, line: `input name "../x": its element ".." names a directory` + plain},
	"input name empty":        {args: sh("--input", "in.txt:"), code: 125, line: `input name "": is empty` + plain},
	"input name with newline": {args: sh("--input", "in.txt:a\nb"), code: 125, line: `input name "a\nb": contains a control or format character` + plain},
	"input name newline last": {args: sh("--input", "in.txt:a\n"), code: 125, line: `input name "a\n": contains a control or format character` + plain},
	"input name with \\ too":  {args: sh("--input", "in.txt:\\\x1b"), code: 125, line: `input name "\\\x1b": contains a control or format character` + plain},
	"input name with U+2028":  {args: sh("--input", "in.txt:\u2028"), code: 125, line: `input name "\u2028": contains a control or format character` + plain},
	"input name not UTF-8":    {args: sh("--input", "in.txt:\xff"), code: 125, line: `input name "\xff": is not UTF-8` + plain},
	"input name too long":     {args: sh("--input", "in.txt:"+strings.Repeat("n", 256)), code: 125, line: `input name "` + strings.Repeat("n", 256) + `": is longer than 255 bytes` + plain},

	"timeout negative":   {args: sh("--timeout", "-1s"), code: 2, line: `--timeout "-1s": write a positive duration such as 30s or 5m`},
	"timeout zero":       {args: sh("--timeout", "0"), code: 2, line: `--timeout "0": write a positive duration such as 30s or 5m`},
	"timeout unitless":   {args: sh("--timeout", "30"), code: 2, line: `--timeout "30": write a positive duration such as 30s or 5m`},
	"timeout empty":      {args: sh("--timeout", ""), code: 2, line: `--timeout "": write a positive duration such as 30s or 5m`},
	"timeout overflow":   {args: sh("--timeout", "9999999h"), code: 2, line: `--timeout "9999999h": write a positive duration such as 30s or 5m`},
	"timeout too long":   {args: sh("--timeout", "100h"), code: 125, line: `timeout 100h0m0s: the ceiling is 1h0m0s` + less},
	"memory negative":    {args: sh("--memory", "-1"), code: 2, line: `--memory "-1": write a positive size such as 512M or 2G`},
	"memory zero":        {args: sh("--memory", "0"), code: 2, line: `--memory "0": write a positive size such as 512M or 2G`},
	"memory NaN":         {args: sh("--memory", "NaN"), code: 2, line: `--memory "NaN": write a positive size such as 512M or 2G`},
	"memory overflow":    {args: sh("--memory", "99999999P"), code: 2, line: `--memory "99999999P": write a positive size such as 512M or 2G`},
	"memory too little":  {args: sh("--memory", "1k"), code: 125, line: `memory 1024 bytes: must be at least 16 MiB (a program cannot start in less)` + sensible},
	"memory too much":    {args: sh("--memory", "17G"), code: 125, line: `memory 17 GiB: the ceiling is 16 GiB` + less},
	"cpus negative":      {args: sh("--cpus", "-1"), code: 2, line: `--cpus "-1": write a positive number such as 0.5 or 2`},
	"cpus zero":          {args: sh("--cpus", "0"), code: 2, line: `--cpus "0": write a positive number such as 0.5 or 2`},
	"cpus NaN":           {args: sh("--cpus", "NaN"), code: 2, line: `--cpus "NaN": write a positive number such as 0.5 or 2`},
	"cpus infinite":      {args: sh("--cpus", "Inf"), code: 2, line: `--cpus "Inf": write a positive number such as 0.5 or 2`},
	"cpus too few":       {args: sh("--cpus", "0.01"), code: 125, line: `cpus 0.01: must be at least 0.05` + sensible},
	"pids negative":      {args: sh("--pids", "-1"), code: 2, line: `--pids "-1": write a positive whole number such as 64`},
	"pids zero":          {args: sh("--pids", "0"), code: 2, line: `--pids "0": write a positive whole number such as 64`},
	"pids fraction":      {args: sh("--pids", "1.5"), code: 2, line: `--pids "1.5": write a positive whole number such as 64`},
	"pids overflow":      {args: sh("--pids", "99999999999999999999"), code: 2, line: `--pids "99999999999999999999": write a positive whole number such as 64`},
	"pids too few":       {args: sh("--pids", "1"), code: 125, line: `pids 1: must be at least 2 (one is the box's init)` + sensible},
	"pids too many":      {args: sh("--pids", "5000"), code: 125, line: `pids 5000: the ceiling is 4096` + less},
	"scratch negative":   {args: sh("--scratch", "-1"), code: 2, line: `--scratch "-1": write a positive size such as 512M or 2G`},
	"scratch too little": {args: sh("--scratch", "1k"), code: 125, line: `scratch 1024 bytes: must be at least 1 MiB` + sensible},
	"scratch too much":   {args: sh("--scratch", "9G"), code: 125, line: `scratch 9 GiB: the ceiling is 8 GiB` + less},

	"output-dir file":         {args: sh("--output-dir", "in.txt"), code: 125, line: `output directory "in.txt": not a directory` + writable},
	"output-dir below a file": {args: sh("--output-dir", "in.txt/x"), code: 125, line: `output directory "in.txt/x": not a directory` + writable},
	"output-dir unwritable":   {args: sh("--output-dir", "/proc/self/x"), code: 125, line: `output directory "/proc/self/x": no such file or directory` + writable},
	"output-dir empty":        {args: sh("--output-dir", ""), code: 2, line: `--output-dir "": is empty: give a value, or leave the flag out`},
	"output-dir of a refusal": {args: sh("--output-dir", "new/deep", "--image", "nope"), code: 125, line: "image is not in the lock file: \"nope\" (locked: python-data, shell): use one of these, or add it with `proctor images build nope`" + bare},

	"command unknown":       {args: []string{"rnu"}, code: 2, line: "command \"rnu\" is not known: see `proctor help`"},
	"audit command unknown": {args: []string{"audit", "lst"}, code: 2, line: "command \"lst\" is not known: see `proctor audit --help`"},
	"audit show nothing":    {args: []string{"audit", "show"}, code: 2, line: "name one run: see `proctor audit list`"},
	"audit show no id":      {args: []string{"audit", "show", "../x"}, code: 125, line: "run \"../x\": no such run: a run id looks like 0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60, see `proctor audit list`"},
	"audit show no run":     {args: []string{"audit", "show", "0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60"}, code: 125, line: "run 0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60: no such run: see `proctor audit list`"},
	"audit list none":       {args: []string{"audit", "list", "--limit", "0"}, code: 2, line: "--limit 0: write a positive number"},
	"audit list as YAML":    {args: []string{"audit", "list", "-o", "yaml"}, code: 2, line: `--output "yaml": it is text or json`},
	"kill nothing":          {args: []string{"kill"}, code: 2, line: "name one run: `proctor status` lists those going on"},
	"kill no run":           {args: []string{"kill", "0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60"}, code: 125, line: "run 0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60: no such run: see `proctor audit list`"},
}

func refusalFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"ok.sh": "echo hi\n", "empty.sh": "", "in.txt": "x\n", "a,b.txt": "x\n", "large.sh": strings.Repeat("#", 8<<20+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	err = errors.Join(
		os.Mkdir(filepath.Join(dir, "dir.sh"), 0o755),
		unix.Mkfifo(filepath.Join(dir, "fifo.sh"), 0o644),
		os.Symlink("loop", filepath.Join(dir, "loop")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// tree lists what is below directories.
func tree(dirs ...string) []string {
	var list []string
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				list = append(list, path)
			}
			return nil
		})
	}
	return list
}

func TestRefusals(t *testing.T) {
	s := root(t)
	dir := refusalFiles(t)
	before := tree(dir, s.dir+"/run", s.dir+"/state/runs")
	for _, name := range slices.Sorted(mapKeys(refusals)) {
		test := refusals[name]
		t.Run(name, func(t *testing.T) {
			cmd := s.command(t.Context(), test.args...)
			cmd.Dir = dir
			r := finish(t, cmd, test.stdin)
			if r.code != test.code {
				t.Errorf("exit code %d, want %d", r.code, test.code)
			}
			if want := "proctor: " + test.line + "\n"; r.stderr != want {
				t.Errorf("stderr:\n got %s\nwant %s", r.stderr, want)
			}
			if r.stdout != "" {
				t.Errorf("stdout %q", r.stdout)
			}
		})
	}
	if diff := cmp.Diff(before, tree(dir, s.dir+"/run", s.dir+"/state/runs")); diff != "" {
		t.Errorf("refused, and yet something is there that was not (-before +after):\n%s", diff)
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// An agent that asked for JSON gets a verdict, whoever refused.
func TestRefusalsAsJSON(t *testing.T) {
	s := root(t)
	dir := refusalFiles(t)
	for _, test := range []struct {
		args           []string
		status         audit.Status
		reason, remedy string
	}{
		{sh("--json", "--image", "nope"), audit.StatusRefused,
			"image is not in the lock file: \"nope\" (locked: python-data, shell): use one of these, or add it with `proctor images build nope`", "see `proctor images list`"},
		{sh("--json", "--memory", "1k"), audit.StatusRefused,
			"memory 1024 bytes: must be at least 16 MiB (a program cannot start in less)", "give a sensible value, or leave the flag out for the default"},
		{sh("--json", "--input", "none"), audit.StatusError, `input "none": no such file or directory: name a file that you can read`, ""},
		{[]string{"run", "--json", "empty.sh"}, audit.StatusError, `code "empty.sh": is empty: there must be a program in it`, ""},
		{sh("--json", "--output-dir", "in.txt"), audit.StatusError, `output directory "in.txt": not a directory: name one that you can write to`, ""},
	} {
		cmd := s.command(t.Context(), test.args...)
		cmd.Dir = dir
		r := finish(t, cmd, "")
		v := parseVerdict(t, r.stdout)
		if r.code != 125 || v.ExitCode != 125 || v.Status != test.status || v.Reason != test.reason || v.Remedy != test.remedy || r.stderr != "" {
			t.Errorf("%q: exit code %d, stderr %q, verdict %+v", test.args, r.code, r.stderr, v)
		}
	}
}

func TestUnreachable(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	long := "/tmp/" + strings.Repeat("l", 120)
	const fix = ": start it with `sudo proctor serve`, or name its socket with --socket or PROCTOR_SOCKET"
	for socket, line := range map[string]string{
		dir + "/none": "none is running at " + dir + "/none" + fix,
		stale:         "none is running at " + stale + fix,
		file:          "none is running at " + file + fix,
		dir:           "none is running at " + dir + fix,
		long:          long + " is no path of a socket: it may have at most 107 bytes",
	} {
		for _, args := range [][]string{
			{"--socket", socket, "status"}, {"status", "--socket", socket}, {"run", "--socket", socket, "--lang", "sh", "-"},
			{"audit", "list", "--socket", socket}, {"audit", "tail", "--socket", socket}, {"images", "list", "--socket", socket},
			{"kill", "--socket", socket, "0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60"},
		} {
			r := s.proctor(t, "echo hi", args...)
			if want := "proctor: the supervisor cannot be reached: " + line + "\n"; r.stderr != want || r.code != 125 || r.stdout != "" {
				t.Errorf("%q: exit code %d, stdout %q, stderr:\n got %s\nwant %s", args, r.code, r.stdout, r.stderr, want)
			}
		}
	}
	if r := s.proctor(t, "", "--socket", "", "status"); r.code != 2 || r.stderr != "proctor: --socket \"\": is empty: name the socket's path\n" {
		t.Errorf("empty socket: exit code %d, stderr %s", r.code, r.stderr)
	}
	// A flag wins over the environment, wherever it stands.
	for _, args := range [][]string{{"--socket", s.socket, "status"}, {"status", "--socket", s.socket}, {"audit", "--socket", s.socket, "list"}} {
		cmd := s.command(t.Context(), args...)
		cmd.Env = append(cmd.Env, "PROCTOR_SOCKET="+stale)
		if args[0] == "audit" {
			continue // the group of commands has no flags of its own
		}
		if r := finish(t, cmd, ""); r.code != 0 {
			t.Errorf("%q: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}

const nobody = 65534

// asNobody makes a command another user's.
func asNobody(t *testing.T, cmd *exec.Cmd, bin string) *exec.Cmd {
	t.Helper()
	cmd.Path = bin
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// publicProctor is a copy of the program where every user may run it.
func publicProctor(t *testing.T, s *supervisor) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.bin, "proctor"))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(testenv.Dir(t), "proctor")
	if err := os.WriteFile(bin, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestOtherUser(t *testing.T) {
	s := root(t)
	bin := publicProctor(t, s)
	dir := filepath.Dir(bin)
	secret := filepath.Join(dir, "secret")
	mine := filepath.Join(dir, "mine.sh")
	if err := errors.Join(
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.WriteFile(mine, []byte("id -u; ls /inputs\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) result {
		return finish(t, asNobody(t, s.command(t.Context(), args...), bin), "echo hi")
	}
	// Without rights on the socket.
	denied := "proctor: the supervisor cannot be reached: you may not use " + s.socket + ": use sudo, or have the operator add you to the group proctor\n"
	for _, args := range [][]string{{"status"}, {"run", mine}, {"audit", "list"}, {"audit", "tail"}} {
		if r := call(args...); r.code != 125 || r.stderr != denied {
			t.Errorf("%q: exit code %d, stderr %s", args, r.code, r.stderr)
		}
	}
	cmd := asNobody(t, s.command(t.Context(), "serve", "--state-dir", dir+"/state", "--run-dir", dir+"/run"), bin)
	if r := finish(t, cmd, ""); r.code != 125 || r.stderr != "proctor: the supervisor needs root: start it with sudo\n" {
		t.Errorf("serve: exit code %d, stderr %s", r.code, r.stderr)
	}

	// As a member of the group would.
	if err := os.Chmod(s.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(s.socket, 0o600) })
	roots := s.verdict(t, "sh", "true")
	r := call("run", "--input", secret, mine)
	if want := "proctor: input \"" + secret + "\": permission denied: name a file that you can read\n"; r.code != 125 || r.stderr != want {
		t.Errorf("unreadable input: exit code %d, stderr:\n got %s\nwant %s", r.code, r.stderr, want)
	}
	r = call("run", "--output-dir", "/", mine)
	if want := "proctor: output directory \"/\": permission denied: name one that you can write to\n"; r.code != 125 || r.stderr != want {
		t.Errorf("unwritable output directory: exit code %d, stderr:\n got %s\nwant %s", r.code, r.stderr, want)
	}
	r = call("run", "--json", "--input", mine+":x", mine)
	own := parseVerdict(t, r.stdout)
	if got := string(own.Stdout.Bytes()); got != "1000\nx\n" {
		t.Errorf("a user's run wrote %q: %s", got, own.Reason)
	}
	if r := call("audit", "show", own.Run); r.code != 0 || !strings.Contains(r.stdout, "by uid 65534") {
		t.Errorf("its own run: exit code %d, stdout %q, stderr %s", r.code, r.stdout, r.stderr)
	}
	for _, args := range [][]string{{"audit", "show", roots.Run}, {"audit", "show", "--code", roots.Run}, {"kill", roots.Run}} {
		if r := call(args...); r.code != 125 || !strings.Contains(r.stderr, "no such run") || r.stdout != "" {
			t.Errorf("%q, root's run: exit code %d, stdout %q, stderr %s", args, r.code, r.stdout, r.stderr)
		}
	}
	if r := call("audit", "list", "-o", "json"); !strings.Contains(r.stdout, own.Run) || strings.Contains(r.stdout, roots.Run) {
		t.Errorf("the list of a user's runs: %s", r.stdout)
	}
	if r := call("audit", "tail"); r.code != 125 || r.stderr != "proctor: the live feed shows all callers' runs, which is for auditors: use sudo, or have the operator give you the role under callers in proctor.yaml\n" {
		t.Errorf("tail: exit code %d, stderr %s", r.code, r.stderr)
	}
}

// Descriptors that a client of the API passes need not come from our client.
func TestDescriptors(t *testing.T) {
	s := root(t)
	dir := testenv.Dir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	open := func(path string, flags int) *os.File {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), path)
		t.Cleanup(func() { f.Close() })
		return f
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, peer := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer socket.Close()
	defer peer.Close()
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()

	client := &api.Client{Socket: s.socket}
	run := func(q *api.RunRequest, files ...*os.File) error {
		v, err := client.Run(context.Background(), q, files, api.RunHandler{
			Admitted: func(string) {}, Stdout: func([]byte) error { return nil }, Stderr: func([]byte) error { return nil },
		})
		if err == nil && v.Status != audit.StatusOK {
			return errors.New(v.Reason)
		}
		return err
	}
	good := func(inputs ...audit.Text) *api.RunRequest {
		return &api.RunRequest{Language: "sh", Name: "x.sh", Code: []byte("cat /inputs/*"), Inputs: inputs}
	}
	const fix = ": pass a regular file that you can read"
	for _, test := range []struct {
		what string
		q    *api.RunRequest
		file []*os.File
		want string
	}{
		{"a file", good("a"), []*os.File{open(file, unix.O_RDONLY)}, ""},
		{"a file for reading and writing", good("a"), []*os.File{open(file, unix.O_RDWR)}, ""},
		{"a file for writing", good("a"), []*os.File{open(file, unix.O_WRONLY)}, `input "a": was not opened for reading` + fix},
		{"a path", good("a"), []*os.File{open(file, unix.O_PATH)}, `input "a": was opened with O_PATH, which gives no right to read it` + fix},
		{"a directory", good("a"), []*os.File{open(dir, unix.O_RDONLY)}, `input "a": is a directory: a client passes the files beneath it` + fix},
		{"a device", good("a"), []*os.File{open("/dev/null", unix.O_RDONLY)}, `input "a": is a device` + fix},
		{"a socket", good("a"), []*os.File{socket}, `input "a": is a socket` + fix},
		{"a pipe", good("a"), []*os.File{pipe}, `input "a": is a FIFO` + fix},
		{"fewer than named", good("a", "b"), []*os.File{open(file, unix.O_RDONLY)}, "2 inputs named, 1 descriptors passed: pass one for each, with the request's first byte"},
		{"more than named", good(), []*os.File{open(file, unix.O_RDONLY)}, "0 inputs named, 1 descriptors passed: pass one for each, with the request's first byte"},
		{"a code name with /", &api.RunRequest{Language: "sh", Name: "../x", Code: []byte("true")}, nil, `code file name "../x": contains a '/': rename the file`},
		{"no code", &api.RunRequest{Language: "sh", Name: "x"}, nil, "empty code: there is nothing to run: give the program in a file or on stdin"},
		{"an argument with NUL", &api.RunRequest{Language: "sh", Name: "x", Code: []byte("true"), Args: []audit.Text{"a\x00b"}}, nil,
			`argument of 3 bytes beginning "a\x00b": at most 131071 bytes and no NUL: pass it in an input file`},
	} {
		err := run(test.q, test.file...)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.what, got, test.want)
		}
	}
}
