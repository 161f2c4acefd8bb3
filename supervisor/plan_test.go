package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/audit"
	"proctor/images"
	"proctor/supervisor/access"
	"proctor/supervisor/limits"
)

// testLock is a lock with images of the given interpreters.
func testLock(t testing.TB, imgs map[string]string) *images.Lock {
	t.Helper()
	var b strings.Builder
	b.WriteString("version: 1\nimages:")
	if len(imgs) == 0 {
		b.WriteString(" {}")
	}
	for i, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range imgs {
			if !yield(name) {
				return
			}
		}
	}) {
		digest := "sha256:" + strings.Repeat(fmt.Sprint(i), 64)
		fmt.Fprintf(&b, `
  %s:
    digest: %[2]s
    archive: %[1]s.tar
    archive_sha256: %[2]s
    archive_bytes: 1
    root_bytes: 1
    root_files: 1
    arch: amd64
    built: 2025-06-01T12:00:00Z
    inputs: %[2]s
    description: test
    env: {MPLBACKEND: agg, HOME: /elsewhere}
    interpreters: {%[3]s}
    packages: {}
`, name, digest, imgs[name])
	}
	lock, err := images.ParseLock("/nowhere/images.lock", []byte(b.String()))
	must(t, err)
	return lock
}

const (
	pythonOnly = "python: [/usr/bin/python3, -X, utf8]"
	shells     = "sh: [/bin/sh], bash: [/bin/bash]"
)

func TestPlan(t *testing.T) {
	lock := testLock(t, map[string]string{"a-python": pythonOnly, "b-python": pythonOnly, "shell": shells})
	for _, test := range []struct {
		name     string
		defaults map[string]string
		req      Request
		image    string
		argv     []string
		refused  []string
	}{
		{name: "the configured image", defaults: map[string]string{"python": "b-python"}, req: Request{Language: "python", Name: "m.py"},
			image: "b-python", argv: []string{"/usr/bin/python3", "-X", "utf8", "/code/m.py"}},
		{name: "the first that has it", req: Request{Language: "python", Name: "m.py", Args: []string{"-x", ""}},
			image: "a-python", argv: []string{"/usr/bin/python3", "-X", "utf8", "/code/m.py", "-x", ""}},
		{name: "configured but not there", defaults: map[string]string{"python": "gone"}, req: Request{Language: "python", Name: "m.py"},
			image: "a-python", argv: []string{"/usr/bin/python3", "-X", "utf8", "/code/m.py"}},
		{name: "the one asked for", defaults: map[string]string{"python": "b-python"}, req: Request{Image: "a-python", Language: "python", Name: "-c"},
			image: "a-python", argv: []string{"/usr/bin/python3", "-X", "utf8", "/code/-c"}},
		{name: "another language of it", req: Request{Image: "shell", Language: "bash", Name: "x"}, image: "shell", argv: []string{"/bin/bash", "/code/x"}},

		{name: "no language", req: Request{Name: "x"}, refused: []string{"no language"}},
		{name: "no language, but an image", req: Request{Image: "shell", Name: "x"}, refused: []string{"no language"}},
		{name: "unknown language", req: Request{Language: "cobol", Name: "x"}, refused: []string{`"cobol"`, "bash, python, sh"}},
		{name: "unknown image", req: Request{Image: "nope", Language: "sh", Name: "x"}, refused: []string{`"nope"`, "a-python, b-python, shell"}},
		{name: "image that is a path", req: Request{Image: "../x", Language: "sh", Name: "x"}, refused: []string{"../x"}},
		{name: "image with a tag", req: Request{Image: "shell:latest", Language: "sh", Name: "x"}, refused: []string{"shell:latest"}},
		{name: "image without the language", req: Request{Image: "shell", Language: "python", Name: "x"}, refused: []string{`"python"`, "shell", "bash, sh"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &Supervisor{lock: lock, defaultImages: test.defaults, limits: testLimits}
			p, err := s.plan(&test.req)
			if test.refused != nil {
				refusedFor(t, err, test.refused...)
				return
			}
			must(t, err)
			img, err := lock.Resolve(test.image)
			must(t, err)
			if p.name != test.image || p.digest != img.Digest.String() || p.ref != img.Ref() {
				t.Errorf("image %s %s %s, want %s", p.name, p.ref, p.digest, test.image)
			}
			if diff := cmp.Diff(test.argv, p.argv); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlanWithoutImages(t *testing.T) {
	s := &Supervisor{lock: testLock(t, nil)}
	_, err := s.plan(&Request{Language: "python", Name: "x"})
	refusedFor(t, err, `"python"`, "no image")
}

// One request's arguments never get into another's.
func TestPlanDoesNotShareArgv(t *testing.T) {
	s := &Supervisor{lock: testLock(t, map[string]string{"shell": shells}), limits: testLimits}
	first, err := s.plan(&Request{Language: "sh", Name: "first"})
	must(t, err)
	_, err = s.plan(&Request{Language: "sh", Name: "second", Args: []string{"x"}})
	must(t, err)
	if diff := cmp.Diff([]string{"/bin/sh", "/code/first"}, first.argv); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironment(t *testing.T) {
	env := environment(map[string]string{"MPLBACKEND": "agg", "PATH": "/opt/bin:/usr/bin"})
	if !slices.IsSorted(env) {
		t.Errorf("in no order: %v", env)
	}
	seen := map[string]string{}
	for _, e := range env {
		k, v, _ := strings.Cut(e, "=")
		if _, twice := seen[k]; twice {
			t.Errorf("%s twice", k)
		}
		seen[k] = v
	}
	for k, want := range map[string]string{
		"MPLBACKEND": "agg", "PATH": "/opt/bin:/usr/bin", // the image's
		"HOME": "/scratch", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TZ": "UTC", "PWD": "/scratch", "USER": "agent",
	} {
		if seen[k] != want {
			t.Errorf("%s=%s, want %s", k, seen[k], want)
		}
	}
	for k, v := range seen {
		if strings.HasPrefix(k, "XDG_") && !strings.HasPrefix(v, "/scratch/") {
			t.Errorf("%s=%s cannot be written", k, v)
		}
	}
	// Nothing of the supervisor's own.
	t.Setenv("PROCTOR_TEST_SECRET", "x")
	if slices.ContainsFunc(environment(nil), func(e string) bool { return strings.Contains(e, "PROCTOR") }) {
		t.Error("the supervisor's environment gets in")
	}
}

var testLimits = LimitRange{Default: defaults, Ceiling: ceiling}

// What a profile says of images, callers and limits holds, whatever is asked for.
func TestPlanUnderAProfile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one-image.yaml": "description: a\nimages: [b-python]\nlimits: {ceiling: {memory: 64M}}\non_audit_loss: mark\n",
		"no-image.yaml":  "description: a\nimages: []\n",
		"some.yaml":      "description: a\ncallers: {users: [1001], groups: [500]}\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := &Supervisor{
		lock: testLock(t, map[string]string{"a-python": pythonOnly, "b-python": pythonOnly, "shell": shells}), limits: testLimits,
		defaultImages: map[string]string{"python": "a-python"}, profiles: Profiles{Dir: dir}, onLoss: limits.KillOnLoss,
	}
	caller := func(uid uint32) audit.Caller { return audit.Caller{UID: uid} }
	some := access.Access{Profiles: []string{"some", "one-image"}, DefaultProfile: "one-image"}
	for _, test := range []struct {
		name    string
		req     Request
		image   string
		refused []string
	}{
		{name: "the image that is allowed", req: Request{Profile: "one-image", Language: "python"}, image: "b-python"},
		{name: "another image", req: Request{Profile: "one-image", Language: "python", Image: "a-python"}, refused: []string{`"a-python"`, "one-image allows b-python"}},
		{name: "a language that the image has not", req: Request{Profile: "one-image", Language: "sh"}, refused: []string{`"sh"`, "one-image allows"}},
		{name: "no image at all", req: Request{Profile: "no-image", Language: "sh"}, refused: []string{`"sh"`, "no-image allows", "none"}},
		{name: "more than the profile's ceiling", req: Request{Profile: "one-image", Language: "python", Limits: LimitRequest{Memory: 65 << 20}}, refused: []string{"memory 65 MiB", "ceiling is 64 MiB"}},
		{name: "more than everybody's ceiling", req: Request{Language: "python", Limits: LimitRequest{Memory: 5 << 30}}, refused: []string{"memory 5 GiB", "ceiling is 4 GiB"}},
		{name: "a user of the profile", req: Request{Profile: "some", Language: "sh", Caller: caller(1001)}, image: "shell"},
		{name: "a group of the profile", req: Request{Profile: "some", Language: "sh", Caller: caller(7), Groups: []uint32{7, 500}}, image: "shell"},
		{name: "root", req: Request{Profile: "some", Language: "sh"}, image: "shell"},
		{name: "somebody else", req: Request{Profile: "some", Language: "sh", Caller: caller(7), Groups: []uint32{7}}, refused: []string{`"some"`, "not for user 7"}},
		{name: "the caller's own profile", req: Request{Language: "python", Caller: caller(7), Access: some}, image: "b-python"},
		{name: "one that is not the caller's", req: Request{Profile: "no-image", Language: "sh", Caller: caller(7), Access: some}, refused: []string{`"no-image" is not for this caller`}},
		{name: "one that is not there, and not the caller's", req: Request{Profile: "../../etc", Language: "sh", Access: some}, refused: []string{`"../../etc" is not for this caller`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.req.Name = "x"
			p, err := s.plan(&test.req)
			if test.refused != nil {
				refusedFor(t, err, test.refused...)
				return
			}
			must(t, err)
			if p.name != test.image {
				t.Errorf("image %s, want %s", p.name, test.image)
			}
			one := p.profile.Name == "one-image"
			if wantLoss := map[bool]LossPolicy{true: limits.MarkOnLoss, false: limits.KillOnLoss}[one]; p.onLoss != wantLoss {
				t.Errorf("on loss %s", p.onLoss)
			}
			if one && p.limits.Memory != 64<<20 || !one && p.limits != defaults {
				t.Errorf("limits %+v", p.limits)
			}
		})
	}
}
