package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proctor/netpolicy/egress"
	"proctor/netpolicy/secret"
)

// Bounds of a secret, in bytes. A shorter one can't be told from other text in an answer, where
// it is to be taken out; a longer one the gateway does not look for.
const (
	minSecret = 8
	maxSecret = 16 << 10
)

// Secrets reads secrets from where credentials say. They are read anew each time, so that one
// that was replaced is used from the next run on.
type Secrets struct {
	// Env is the environment, NAME=VALUE, of env sources and of the commands. Default: empty.
	Env []string
	// Timeout is how long a command may take. Default: 10 s.
	Timeout time.Duration
}

// Read is a credential's secret. The error names the credential, its source, the rule and the
// fix, and has nothing of what was read, nor of what a command wrote.
func (r Secrets) Read(ctx context.Context, c *egress.Credential) (secret.Secret, error) {
	var (
		data []byte
		err  error
		from string
	)
	switch {
	case c.Source.File != "":
		from = "file " + c.Source.File
		data, err = readSecret(c.Source.File)
	case c.Source.Env != "":
		from = "variable " + c.Source.Env
		data, err = r.variable(c.Source.Env)
	case len(c.Source.Command) > 0:
		from = "command " + c.Source.Command[0]
		data, err = r.run(ctx, c.Source.Command)
	default:
		from, err = "no source", errors.New("name a file, a variable or a command")
	}
	defer clear(data)
	if err == nil {
		data, err = checkSecret(data)
	}
	if err != nil {
		return secret.Secret{}, fmt.Errorf("credential %s: %s: %w", c.Name, from, err)
	}
	return secret.New(data), nil
}

var errShort = fmt.Errorf("has less than %d bytes, which can't be told from other text in an answer: use a longer secret", minSecret)

// checkSecret takes off one newline at the end, which editors and commands add.
func checkSecret(data []byte) ([]byte, error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	switch i := bytes.IndexFunc(data, func(r rune) bool { return r < ' ' || r == 0x7f }); {
	case len(data) == 0:
		return nil, errors.New("is empty: put the secret there")
	case len(data) > maxSecret:
		return nil, fmt.Errorf("has more than %d bytes: put the secret alone there", maxSecret)
	case i >= 0 && (data[i] == '\n' || data[i] == '\r'):
		return nil, errors.New("has more than one line, or a carriage return: put the secret alone there, on one line")
	case i >= 0:
		return nil, errors.New("has a NUL or another control character: put the secret alone there, as text")
	case len(data) < minSecret:
		return nil, errShort
	}
	return data, nil
}

// SecretFile reads a secret that stands alone in a file which nobody but its owner may read.
func SecretFile(file string) (secret.Secret, error) {
	data, err := readSecret(file)
	if err == nil {
		data, err = checkSecret(data)
	}
	if errors.Is(err, errShort) {
		err = fmt.Errorf("has less than %d bytes, as no URL, token or key has: put the whole of it there", minSecret)
	}
	if err != nil {
		return secret.Secret{}, err
	}
	return secret.New(data), nil
}

// readSecret opens first and looks then, so that what it judges is what it reads.
func readSecret(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for a writer
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file: put the secret in one")
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("has mode %04o, so that others than its owner may use it: chmod 600 %s", mode, file)
	}
	data := make([]byte, maxSecret+2) // the newline, and one byte that is too much
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, cause(err)
	}
	return data[:n], nil
}

// cause leaves out the path, which the caller of all this says.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

func (r Secrets) variable(name string) ([]byte, error) {
	value, found := []byte(nil), false
	for _, pair := range r.Env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value, found = []byte(v), true // the last one counts, as for the commands
		}
	}
	if !found {
		return nil, errors.New("is not set in the supervisor's environment: set it before starting it")
	}
	return value, nil
}

// run is what a command writes to its standard output. It has nothing to read, and nothing of
// what it writes elsewhere is kept. After the timeout its whole process group is killed.
func (r Secrets) run(ctx context.Context, argv []string) ([]byte, error) {
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.Env = append([]string{}, r.Env...) // nil would mean this process's own
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for those who left the group and hold stdout open
	out := &bounded{}
	cmd.Stdout = out
	err := cmd.Run()
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return out.data, nil
	case out.full:
		err = fmt.Errorf("wrote more than %d bytes: let it write the secret alone", maxSecret)
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("took longer than %s and was killed: see why by running it", timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		err = errors.New("left a process that holds its stdout open: let it end all it starts")
	case exited:
		err = fmt.Errorf("ended with %s: see why by running it", exit.ProcessState)
	default:
		err = fmt.Errorf("could not be run: %w", cause(err))
	}
	clear(out.data)
	return nil, err
}

// bounded keeps no more than a secret can have.
type bounded struct {
	data []byte
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > maxSecret+1 {
		b.full = true
		return 0, io.ErrShortWrite
	}
	if b.data == nil {
		b.data = make([]byte, 0, maxSecret+1) // it never moves, so clearing it clears all
	}
	b.data = append(b.data, p...)
	return len(p), nil
}
