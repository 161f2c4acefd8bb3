package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"proctor/audit"
)

// hashTimeout is how long a verdict waits for inputs that are not read to their end when the
// program has ended.
const hashTimeout = 30 * time.Second

// A reading is the inputs of a run, being hashed while the program runs: it does not wait for
// that. What changes meanwhile is found by the times that the kernel keeps.
type reading struct {
	inputs  []*reader
	done    chan struct{}
	stop    context.CancelFunc
	timeout time.Duration
}

type reader struct {
	name   string
	file   *os.File // the caller's
	before unix.Stat_t
	linked bool   // it has another name for the run's time, which changes its ctime
	sum    string // "" until all of it was read
	err    error
}

// readInputs notes what the inputs are, before anybody else sees them, and begins to hash them.
// The files must stay open until finish has returned.
func readInputs(inputs []Input) (*reading, error) {
	ctx, stop := context.WithCancel(context.Background())
	r := &reading{done: make(chan struct{}), stop: stop, timeout: hashTimeout}
	for _, in := range inputs {
		one := &reader{name: in.Name, file: in.File}
		if err := unix.Fstat(int(in.File.Fd()), &one.before); err != nil {
			stop()
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
		r.inputs = append(r.inputs, one)
	}
	go func() {
		defer close(r.done)
		for _, one := range r.inputs {
			one.read(ctx)
		}
	}()
	return r, nil
}

// read hashes as much as the file had at first. Its position is the caller's, too, and stays.
func (r *reader) read(ctx context.Context) {
	sum := sha256.New()
	src := io.NewSectionReader(r.file, 0, r.before.Size)
	const piece = 4 << 20
	for {
		if r.err = ctx.Err(); r.err != nil {
			return
		}
		_, err := io.CopyN(sum, src, piece)
		if errors.Is(err, io.EOF) {
			r.sum = hex.EncodeToString(sum.Sum(nil))
			return
		}
		if r.err = err; err != nil {
			return
		}
	}
}

// finish waits for the hashes, for some time, and says what the inputs were and whether they
// changed. Where a hash is missing, why is said.
func (r *reading) finish() []audit.InputFile {
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	late := false
	select {
	case <-r.done:
	case <-timer.C:
		late = true
		r.stop()
	}
	var files []audit.InputFile
	for _, one := range r.inputs {
		f := audit.InputFile{Name: audit.Text(one.name), Bytes: one.before.Size}
		select {
		case <-r.done:
			f.SHA256 = one.sum
			if one.err != nil {
				f.Error = one.err.Error()
			}
		default:
			// Whatever holds the read up, nothing of the reader may be looked at.
		}
		if late {
			f.Error = fmt.Sprintf("not read to its end in %s", r.timeout)
		}
		var after unix.Stat_t
		if err := unix.Fstat(int(one.file.Fd()), &after); err != nil {
			f.Error = err.Error()
		}
		f.Changed = after.Size != one.before.Size || after.Mtim != one.before.Mtim || !one.linked && after.Ctim != one.before.Ctim
		files = append(files, f)
	}
	r.stop()
	return files
}
