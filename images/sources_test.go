package images_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proctor/images"
)

func TestHostSources(t *testing.T) {
	etc := t.TempDir()
	write(t, etc, "sources.list", `# deb http://no.example/ bookworm main
deb [signed-by=/keys/a.gpg arch=amd64,arm64] http://one.example/debian bookworm main contrib # first
deb-src http://one.example/debian bookworm main
deb cdrom:[disc]/ bookworm main
deb http://tool.example/ bookworm stable
deb http://one.example/security bookworm-security main
deb http://one.example/debian trixie main
`, 0o644)
	write(t, etc, "sources.list.d/b.sources", `Types: deb deb-src
URIs: http://two.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main non-free
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----

# A whole stanza that is off.
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
`, 0o644)
	write(t, etc, "sources.list.d/c.sources.disabled", "Types: deb\n", 0o644)
	got, err := images.HostSources(etc, "bookworm")
	if err != nil {
		t.Fatal(err)
	}
	want := `Types: deb
URIs: http://one.example/debian
Suites: bookworm
Components: main
Signed-By: /keys/a.gpg
Architectures: amd64 arm64

Types: deb
URIs: http://one.example/security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://two.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err = images.HostSources(etc, "sid")
	wantError(t, err, `"sid"`, "bookworm, ", "trixie", "add a source")
	_, err = images.HostSources(filepath.Join(etc, "none"), "bookworm")
	wantError(t, err, "offer nothing")
}

func TestProgressFromAptOutput(t *testing.T) {
	steps, blame := images.Watch(strings.NewReader(`I: running apt-get update...
Get:1 http://one.example bookworm InRelease [151 kB]
I: downloading packages with apt...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://one.example bookworm/main amd64 libc6 amd64 2.36 [2759 kB]
Get:2 http://one.example bookworm/main amd64 dash amd64 0.5 [91.8 kB]
I: extracting archives...
I: installing essential packages...
Unpacking libc6:amd64 (2.36) ...
Setting up libc6:amd64 (2.36) ...
I: installing remaining packages inside the chroot...
0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://one.example bookworm/main amd64 tzdata all 2024a [300 kB]
Unpacking tzdata (2024a) ...
Setting up tzdata (2024a) ...
E: no space left
`))
	want := []string{
		"fetch package lists",
		"resolve base packages",
		"download base packages 0/2", "download base packages 1/2", "download base packages 2/2",
		"extract base packages",
		"unpack base packages 0/2", "unpack base packages 1/2",
		"configure base packages 0/2", "configure base packages 1/2",
		"resolve packages",
		"download packages 0/1", "download packages 1/1",
		"unpack packages 0/1", "unpack packages 1/1",
		"configure packages 0/1", "configure packages 1/1",
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Error(diff)
	}
	if blame != "E: no space left" {
		t.Errorf("blame is %q", blame)
	}
}
