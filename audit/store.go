package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Store keeps the records of all runs, a directory each:
//
//	RUN/request.json   what was asked for
//	RUN/code           the code, verbatim
//	RUN/events.jsonl   what it did
//	RUN/verdict.json   how it ended; absent while it runs
//	RUN/.verdict       room for that one, until it is written
//	RUN/outputs/       what it left, by number, in the verdict's order
type Store struct {
	dir string
}

// OpenStore uses dir, which it makes if need be.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit store: %w", err)
	}
	return &Store{dir: dir}, nil
}

// ErrNoRun is a run that the store has no record of.
var ErrNoRun = errors.New("no such run")

var runID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Record is one run's directory.
type Record struct {
	Run string
	dir string
}

// CheckRun refuses what is no run id, so that it names nothing but a run wherever it goes.
func CheckRun(run string) error {
	if !runID.MatchString(run) {
		return fmt.Errorf("run %.80q: %w: a run id looks like 0190b0a4-7c1e-7a5e-8f6b-2f1c3d4e5f60, see `proctor audit list`", run, ErrNoRun)
	}
	return nil
}

// Create makes the record of a new run, with its code, or nothing.
func (s *Store) Create(run string, code []byte) (*Record, error) {
	if err := CheckRun(run); err != nil {
		return nil, err
	}
	r := &Record{Run: run, dir: filepath.Join(s.dir, run)}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit record: %w", err)
	}
	err := writeFile(r.Path("code"), code)
	if err == nil {
		err = r.keepRoom()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("audit record: %w", err), os.RemoveAll(r.dir))
	}
	return r, nil
}

// Open finds the record of a run.
func (s *Store) Open(run string) (*Record, error) {
	if err := CheckRun(run); err != nil {
		return nil, err
	}
	r := &Record{Run: run, dir: filepath.Join(s.dir, run)}
	if _, err := os.Stat(r.dir); err != nil {
		return nil, fmt.Errorf("run %s: %w: see `proctor audit list`", run, ErrNoRun)
	}
	return r, nil
}

// Runs lists the runs, newest first. Their ids are UUIDs of version 7 (RFC 9562), which sort by time.
func (s *Store) Runs() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("audit store: %w", err)
	}
	var runs []string
	for _, e := range slices.Backward(entries) {
		if runID.MatchString(e.Name()) {
			runs = append(runs, e.Name())
		}
	}
	return runs, nil
}

// Path names a file of the record.
func (r *Record) Path(elem ...string) string {
	return filepath.Join(append([]string{r.dir}, elem...)...)
}

// RecordAt is the record in a directory, which may be a copy: it is only read.
func RecordAt(dir string) *Record { return &Record{Run: filepath.Base(dir), dir: dir} }

// Open opens a file of the record for reading, which is the caller's to close.
func (r *Record) Open(elem ...string) (io.ReadCloser, error) { return openRegular(r.Path(elem...)) }

// openRegular opens a regular file, or nothing: neither a link that leads elsewhere nor a pipe.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("audit record: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("audit record: %s is no regular file: the record was changed", f.Name()), err, f.Close())
	}
	return f, nil
}

// WriteRequest replaces request.json.
func (r *Record) WriteRequest(q *Request) error { return r.write(requestFile, q) }

func (r *Record) write(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	if err := writeFile(r.Path(name), append(data, '\n')); err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	return nil
}

// beside has a file that is being written stand where it will be, not in TMPDIR.
func beside(path string) renameio.Option { return renameio.WithTempDir(filepath.Dir(path)) }

// writeFile replaces a file whole or not at all.
func writeFile(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600, beside(path))
}

// Request reads request.json.
func (r *Record) Request() (*Request, error) { return readJSON[Request](r.Path(requestFile)) }

// HasVerdict says whether the run has ended and been judged, without reading how.
func (r *Record) HasVerdict() (bool, error) {
	_, err := os.Lstat(r.Path(verdictFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Verdict reads verdict.json; nil without an error while the run has none.
func (r *Record) Verdict() (*Verdict, error) {
	v, err := readJSON[Verdict](r.Path(verdictFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return v, err
}

func readJSON[T any](path string) (*T, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("audit record: %w", err)
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("audit record: %s: %w", path, err)
	}
	return v, nil
}
