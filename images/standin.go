package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// standinName is the empty package that satisfies a recipe's Without list while packages are installed.
const standinName = "proctor-without"

// standinVersion is what the stand-in says to provide: above any version a dependency asks for.
const standinVersion = "9999"

// makeStandin builds the stand-in package in a small apt repository below dir, and returns its apt source. Without it,
// python3-matplotlib brings a C++ compiler along.
func makeStandin(ctx context.Context, dir string, without []string) (source string, err error) {
	tree, repo := filepath.Join(dir, "standin"), filepath.Join(dir, "repo")
	for _, d := range []string{filepath.Join(tree, "DEBIAN"), repo} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	provides := make([]string, len(without))
	for i, p := range without {
		provides[i] = fmt.Sprintf("%s (= %s)", p, standinVersion)
	}
	control := fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: Proctor <proctor@localhost>\nProvides: %s\nDescription: stands in for packages an image does without\n",
		standinName, strings.Join(provides, ", "))
	if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
		return "", err
	}
	deb := standinName + ".deb"
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "--build", tree, filepath.Join(repo, deb)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("dpkg-deb: %w: %s", err, oneLine(string(out)))
	}
	data, err := os.ReadFile(filepath.Join(repo, deb))
	if err != nil {
		return "", err
	}
	index := bytes.NewBufferString(control)
	fmt.Fprintf(index, "Filename: ./%s\nSize: %d\nSHA256: %x\n", deb, len(data), sha256.Sum256(data))
	if err := os.WriteFile(filepath.Join(repo, "Packages"), index.Bytes(), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("Types: deb\nURIs: copy:%s\nSuites: ./\nTrusted: yes\n", repo), nil
}
