package supervisor

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"proctor/images"
	"proctor/netpolicy/egress"
	"proctor/supervisor/box"
	"proctor/supervisor/profile"
)

// plan is what a request comes to: which image, and what is started in it.
type plan struct {
	name   string // of the image
	ref    string // in containerd
	digest string
	argv   []string
	env    []string

	java    bool // the image has it, which finds its authorities in a way of its own
	profile *profile.Profile
	policy  *egress.Policy // what the request leaves of the profile's
	limits  box.Limits
	onLoss  LossPolicy
}

// plan picks the image and the interpreter.
func (s *Supervisor) plan(req *Request) (*plan, error) {
	lock := s.currentLock()
	if req.Language == "" {
		return nil, refuse("say which with --lang, such as --lang python", "no language: the file's ending does not tell")
	}
	prof, policy, err := s.profileFor(req)
	if err != nil {
		return nil, err
	}
	name := req.Image
	if name == "" {
		if name, err = s.imageFor(lock, req.Language, prof); err != nil {
			return nil, err
		}
	}
	if !prof.Has(name) {
		return nil, refuse("choose one of these with --image, or another profile", "image %q: profile %s allows %s", clip(name), prof.Name, list(prof.Images))
	}
	img, err := lock.Resolve(name)
	if err != nil {
		return nil, refuse("see `proctor images list`", "%v", err)
	}
	interpreter, ok := img.Interpreters[req.Language]
	if !ok {
		return nil, refuse("use one of these, or another image: see `proctor images list`",
			"language %q: image %s has interpreters for %s", req.Language, name, strings.Join(img.Languages(), ", "))
	}
	r := s.limits.under(prof.Limits)
	limits, err := req.Limits.within(r.Default, r.Ceiling, "of profile "+prof.Name+", or in proctor.yaml")
	if err != nil {
		return nil, err
	}
	argv := slices.Concat(interpreter, []string{path.Join("/code", req.Name)}, req.Args)
	return &plan{
		name: name, ref: img.Ref(), digest: img.Digest.String(), argv: argv, env: environment(img.Env),
		java: hasJava(img), profile: prof, policy: policy, limits: limits, onLoss: cmp.Or(prof.OnAuditLoss, s.onLoss),
	}, nil
}

func hasJava(img images.Image) bool {
	for name := range img.Packages {
		if strings.HasPrefix(name, "openjdk-") {
			return true
		}
	}
	return false
}

// imageFor is the configured image for a language, or the first that has it, of those that the
// profile allows.
func (s *Supervisor) imageFor(lock *images.Lock, language string, prof *profile.Profile) (string, error) {
	if name, ok := s.defaultImages[language]; ok && prof.Has(name) {
		if _, err := lock.Resolve(name); err == nil {
			return name, nil
		}
	}
	known := map[string]bool{}
	for _, img := range lock.All() {
		if !prof.Has(img.Name) {
			continue
		}
		if _, ok := img.Interpreters[language]; ok {
			return img.Name, nil
		}
		for _, l := range img.Languages() {
			known[l] = true
		}
	}
	if prof.Images != nil {
		return "", refuse("use another profile, or a language that these have", "language %q: none of the images that profile %s allows has an interpreter for it: %s", language, prof.Name, list(prof.Images))
	}
	if len(known) == 0 {
		return "", refuse("have the operator make one with `proctor images build`", "language %q: no image has an interpreter, as there is no image", language)
	}
	return "", refuse("choose one of these with --lang",
		"language %q: no image has an interpreter for it, there is %s", language, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}

// environment is what every program starts with. Whatever programs write without being
// asked (caches, settings, temporary files) goes to scratch.
func environment(image map[string]string) []string {
	env := map[string]string{
		"PATH":            "/usr/local/bin:/usr/bin:/bin",
		"HOME":            "/scratch",
		"USER":            "agent",
		"LOGNAME":         "agent",
		"SHELL":           "/bin/sh",
		"PWD":             "/scratch",
		"TMPDIR":          "/tmp",
		"XDG_CACHE_HOME":  "/scratch/.cache",
		"XDG_CONFIG_HOME": "/scratch/.config",
		"XDG_DATA_HOME":   "/scratch/.local/share",
		"XDG_STATE_HOME":  "/scratch/.local/state",
		"LANG":            "C.UTF-8",
		"TZ":              "UTC",
	}
	maps.Copy(env, image)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, fmt.Sprintf("%s=%s", k, env[k]))
	}
	return list
}
