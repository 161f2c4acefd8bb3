package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A tiny static init: says hello, then waits for a signal.
const tinySource = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	fmt.Println("hello")
	if len(os.Args) > 1 && os.Args[1] == "once" {
		return
	}
	<-c
}
`

// TinyRootFS makes a root file system that holds one static program, /init, which
// prints "hello" and, unless its argument is "once", waits for SIGTERM. It is for
// tests of what is below images.
func TinyRootFS(t testing.TB) string {
	t.Helper()
	dir := Dir(t)
	src := filepath.Join(dir, "tiny.go")
	if err := os.WriteFile(src, []byte(tinySource), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "rootfs")
	for _, sub := range []string{"", "proc", "dev", "sys", "tmp", "etc"} {
		if err := os.Mkdir(filepath.Join(root, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(root, "init"), src)
	cmd.Dir = dir // outside the module: its go.mod and flags don't matter
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GO111MODULE=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tiny program: %v\n%s", err, out)
	}
	return root
}
