package images_test

import (
	"os"
	"path/filepath"
	"testing"

	"proctor/images"
)

func FuzzParseRecipe(f *testing.F) {
	f.Add([]byte(goodRecipe))
	files, err := filepath.Glob("recipes/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("packages: !\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := images.ParseRecipe("tool.yaml", data)
		if err != nil {
			wantError(t, err, "tool.yaml")
			return
		}
		if err := r.Validate(); err != nil {
			t.Errorf("accepted, yet not valid: %v", err)
		}
	})
}

func FuzzParseLock(f *testing.F) {
	dir := f.TempDir()
	lock, _ := images.PackTree(f, dir, smallTree(f), "alpha")
	data, err := lock.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("version: 1\nimages: {}\n"))
	f.Add([]byte("version: 1\nimages: &a {b: *a}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lock, err := images.ParseLock("images.lock", data)
		if err != nil {
			wantError(t, err, "images.lock")
			return
		}
		for _, name := range lock.Names() {
			if _, err := lock.Resolve(name); err != nil {
				t.Errorf("in the lock, yet refused: %v", err)
			}
		}
		out, err := lock.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := images.ParseLock("images.lock", out)
		if err != nil {
			t.Fatalf("%v in what was written from\n%s", err, data)
		}
		if out2, err := again.Marshal(); err != nil || string(out) != string(out2) {
			t.Errorf("not the same when read and written again: %v", err)
		}
	})
}
