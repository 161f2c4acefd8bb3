package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"proctor/audit"
	"proctor/supervisor"
	"proctor/supervisor/access"
	"proctor/testenv"
)

// actVariable names what this binary is to do as another user, instead of testing.
const actVariable = "PROCTOR_API_ACT"

func TestMain(m *testing.M) {
	if socket := os.Getenv(actVariable); socket != "" {
		actAsAnother(socket)
		return
	}
	if os.Getenv(fuseVariable) != "" {
		answerFUSE(3)
		return
	}
	goleak.VerifyTestMain(m)
}

// actAsAnother prints what the supervisor tells another user than its own.
func actAsAnother(socket string) {
	c := &Client{Socket: socket}
	ctx := context.Background()
	runs, err := c.Runs(ctx, 10)
	for _, r := range runs {
		fmt.Println("list", r.Run)
	}
	if err != nil {
		fmt.Println("list", err)
	}
	for _, run := range []string{myRun, otherRun} {
		_, err := c.Show(ctx, run)
		var e *Error
		fmt.Println("show", run, errors.As(err, &e) && e.Code == http.StatusNotFound, err == nil)
		fmt.Println("code", run, c.Code(ctx, run, io.Discard) == nil)
		fmt.Println("events", run, c.Events(ctx, run, func(audit.Event) error { return nil }) == nil)
		fmt.Println("output", run, c.Output(ctx, run, 0, io.Discard) == nil)
		fmt.Println("kill", run, c.Kill(ctx, run) == nil)
	}
	for _, run := range []string{inLine, ownLine} {
		var e *Error
		err := c.Kill(ctx, run)
		fmt.Println("kill in line", run, errors.As(err, &e) && e.Code == http.StatusNotFound, err == nil)
	}
	var e *Error
	tail, enough := context.WithCancel(ctx)
	fmt.Println("tail refused", errors.As(c.Tail(tail, enough, nil), &e) && e.Code == http.StatusForbidden)
	st, err := c.Status(ctx)
	fmt.Println("status", err == nil, len(st.Active), len(st.Waiting), len(st.Counters))
	v, err := c.Run(ctx, &RunRequest{Language: "sh", Agent: "me \xff", Conversation: "c1"}, nil, RunHandler{Admitted: func(string) {}})
	fmt.Println("run", err == nil && v.Run == otherRun)
}

// What others see and end depends on their role, and who they are is the kernel's word: a user,
// and the groups that it has besides its first one.
func TestAnotherUserRoot(t *testing.T) {
	testenv.Root(t)
	const other, group = 65534, 12345
	in := func(role access.Role) access.Rules {
		return access.Rules{{Who: access.Who{Users: []access.UserID{1}}, Role: access.Operator}, {Who: access.Who{Groups: []access.GroupID{group}}, Role: role, Profiles: []string{"a"}}}
	}
	own := fmt.Sprintf(`list %[2]s
show %[1]s true false
code %[1]s false
events %[1]s false
output %[1]s false
kill %[1]s false
show %[2]s false true
code %[2]s true
events %[2]s true
output %[2]s true
kill %[2]s true
kill in line %[3]s true false
kill in line %[4]s false true
tail refused true
status true 0 0 0
run true
`, myRun, otherRun, inLine, ownLine)
	all := fmt.Sprintf(`list %[3]s
list %[2]s
list %[1]s
show %[1]s false true
code %[1]s true
events %[1]s true
output %[1]s true
kill %[1]s KILLS
show %[2]s false true
code %[2]s true
events %[2]s true
output %[2]s true
kill %[2]s true
kill in line %[4]s false KILLS
kill in line %[5]s false true
tail refused false
status true 2 2 2
run true
`, myRun, otherRun, noRun, inLine, ownLine)
	for name, test := range map[string]struct {
		rules    access.Rules
		profiles []string
		says     string
		killed   []string
	}{
		"no rule":  {nil, nil, own, []string{otherRun, ownLine}},
		"caller":   {in(access.Caller), []string{"a"}, own, []string{otherRun, ownLine}},
		"auditor":  {in(access.Auditor), []string{"a"}, strings.ReplaceAll(all, "KILLS", "false"), []string{otherRun, ownLine}},
		"operator": {in(access.Operator), []string{"a"}, strings.ReplaceAll(all, "KILLS", "true"), []string{myRun, otherRun, inLine, ownLine}},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := serveWith(t, func(s *Server) { s.Callers = test.rules })
			f.onRun(func(_ context.Context, q *supervisor.Request, _ supervisor.Observer) (*audit.Verdict, error) {
				if q.Caller.UID != other || q.Caller.GID != other || q.Caller.PID == int32(os.Getpid()) {
					t.Errorf("caller %+v", q.Caller)
				}
				if slices.Sort(q.Groups); !slices.Equal(q.Groups, []uint32{group, 23456, other}) {
					t.Errorf("groups %v", q.Groups)
				}
				if !slices.Equal(q.Access.Profiles, test.profiles) || string(q.Agent) != "me \xff" || string(q.Conversation) != "c1" {
					t.Errorf("access %+v, agent %q, conversation %q", q.Access, q.Agent, q.Conversation)
				}
				return &audit.Verdict{Run: otherRun}, nil
			})
			writeRun(t, f, myRun, 0)
			writeRun(t, f, otherRun, other)
			// One that was never given its code: nobody's.
			_, err := f.store.Create(noRun, nil)
			must(t, err)
			f.goOn(myRun, otherRun)
			f.wait(inLine, audit.Caller{})
			f.wait(ownLine, audit.Caller{UID: other})
			must(t, os.Chmod(c.Socket, 0o666))

			self, err := os.Executable()
			must(t, err)
			copied := filepath.Join(filepath.Dir(c.Socket), "self")
			data, err := os.ReadFile(self)
			must(t, err)
			must(t, os.WriteFile(copied, data, 0o755))
			cmd := exec.Command(copied)
			cmd.Dir = "/"
			cmd.Env = []string{actVariable + "=" + c.Socket}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other, Groups: []uint32{group, 23456}}}
			out, err := cmd.CombinedOutput()
			must(t, err)
			if diff := cmp.Diff(test.says, string(out)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.killed, f.killed); diff != "" {
				t.Errorf("killed: %s", diff)
			}
			if runs, err := c.Runs(t.Context(), 10); err != nil || len(runs) != 3 {
				t.Errorf("root sees %+v, %v", runs, err)
			}
		})
	}
}
