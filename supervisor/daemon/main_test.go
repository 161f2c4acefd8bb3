package daemon_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"proctor/supervisor/daemon"
	"proctor/testenv"
)

// helperEnv makes the test binary a supervisor that can be killed: it starts a daemon
// with the options in the variable, prints its pid, and waits.
const helperEnv = "PROCTOR_TEST_DAEMON"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(helperEnv)
	if !ok {
		os.Exit(m.Run())
	}
	var opts daemon.Options
	if err := json.Unmarshal([]byte(text), &opts); err != nil {
		panic(err)
	}
	opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	d, err := daemon.Start(context.Background(), opts)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(d.Status().PID)
	select {}
}

// supervise starts a daemon in another process and returns that process and
// containerd's pid, or what Start said.
func supervise(t *testing.T, opts daemon.Options) (*exec.Cmd, int, string) {
	t.Helper()
	opts.Logger = nil
	text, err := json.Marshal(opts)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the other supervisor said nothing: %v", err)
	}
	var pid int
	if _, err := fmt.Sscanf(line, "%d\n", &pid); err != nil {
		return cmd, 0, line
	}
	return cmd, pid, ""
}

// rootTest begins every test here that needs root.
func rootTest(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	testenv.LeakCheck(t)
}
