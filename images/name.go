package images

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"
)

// refHost is the host part of the names under which images are kept in containerd. It resolves nowhere, and Proctor
// never pulls: it only marks the images as Proctor's.
const refHost = "proctor.local"

const maxNameLen = 64

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// checkName says what is wrong with an image name, and for references of other tools, what to write instead.
func checkName(name string) error {
	const rule = `lower-case letters, digits, ".", "_" and "-", first a letter or digit, at most 64 characters`
	switch {
	case name == "":
		return fmt.Errorf("image name is empty: use %s", rule)
	case strings.Contains(name, "@"):
		return fmt.Errorf("image %q has a digest: digests are pinned in the lock file, use the bare name %q",
			clip(name), clip(name[:strings.Index(name, "@")]))
	case strings.Contains(name, "/"):
		return fmt.Errorf("image %q is a path or registry reference: images are built from recipes, use a bare name from the lock file",
			clip(name))
	case strings.Contains(name, ":"):
		return fmt.Errorf("image %q has a tag: versions are pinned in the lock file, use the bare name %q",
			clip(name), clip(name[:strings.Index(name, ":")]))
	case len(name) > maxNameLen, !nameSyntax.MatchString(name):
		return fmt.Errorf("image name %q is not valid: use %s", clip(name), rule)
	}
	return nil
}

// clip shortens what users or files sent so that an error stays one readable line.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// checkDigest accepts canonical sha256 digests only.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w", clip(string(d)), err)
	}
	if d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("digest %q: use sha256", clip(string(d)))
	}
	return nil
}
