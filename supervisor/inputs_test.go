package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func inputFile(t *testing.T, name, content string) Input {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return Input{Name: name, File: f}
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestInputsAreHashed(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<20)
	inputs := []Input{inputFile(t, "empty", ""), inputFile(t, "large", large), inputFile(t, "half", "first second")}
	// Its position is the caller's.
	if _, err := inputs[2].File.Seek(6, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	r, err := readInputs(inputs)
	must(t, err)
	for i, f := range r.finish() {
		content := []string{"", large, "first second"}[i]
		if string(f.Name) != inputs[i].Name || f.Bytes != int64(len(content)) || f.SHA256 != sumOf(content) || f.Changed || f.Error != "" {
			t.Errorf("%+v", f)
		}
	}
	if at, err := inputs[2].File.Seek(0, io.SeekCurrent); err != nil || at != 6 {
		t.Errorf("the caller's position is %d, %v", at, err)
	}
}

func TestChangedInputs(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"written": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.Write([]byte("SAME LENGTH"))
			return err
		},
		"appended": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.Write([]byte("x"))
			return err
		},
		"cut": func(path string) error { return os.Truncate(path, 1) },
		// The time that can be set back is not the only one.
		"written, and its time set back": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte("SAME LENGTH"), 0); err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputFile(t, "in", "same length")
			other := inputFile(t, "other", "stays")
			r, err := readInputs([]Input{in, other})
			must(t, err)
			<-r.done
			time.Sleep(100 * time.Millisecond) // the kernel's clock for files is a coarse one
			must(t, change(in.File.Name()))
			files := r.finish()
			if !files[0].Changed || files[0].Bytes != 11 || files[0].SHA256 != sumOf("same length") {
				t.Errorf("%+v", files[0])
			}
			if files[1].Changed {
				t.Errorf("%+v", files[1])
			}
		})
	}
}

// TestInputWithoutEnd takes too long to read: the verdict does not wait for it.
func TestInputWithoutEnd(t *testing.T) {
	in := inputFile(t, "holes", "")
	must(t, os.Truncate(in.File.Name(), 1<<40))
	r, err := readInputs([]Input{in, inputFile(t, "after", "after")})
	must(t, err)
	r.timeout = 50 * time.Millisecond
	began := time.Now()
	files := r.finish()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, f := range files {
		if f.SHA256 != "" || f.Error != "not read to its end in 50ms" || f.Changed {
			t.Errorf("%+v", f)
		}
	}
	<-r.done
}
