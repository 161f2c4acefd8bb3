package box

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// goMessage is what a supervisor sends, or something like it.
func goMessage(magic, length, argc, envc uint32, text string) []byte {
	h := goHeader{Magic: magic, Length: length, Argc: argc, Envc: envc}
	return append(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))), text...)
}

// converse sends init a message with n descriptors in pieces, and returns what it reports
// and how it ends.
func converse(t testing.TB, binary string, descriptors int, pieces ...[]byte) ([]report, syscall.WaitStatus) {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = []string{"ASAN_OPTIONS=detect_leaks=0:exitcode=99", "UBSAN_OPTIONS=exitcode=99"}
	p := startInit(t, cmd)
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var fds []int
	for range descriptors {
		fds = append(fds, int(null.Fd()))
	}
	for i, piece := range pieces {
		var rights []byte
		if i == 0 && descriptors > 0 {
			rights = unix.UnixRights(fds...)
		}
		if len(piece) == 0 {
			continue
		}
		n, _, err := p.conn.WriteMsgUnix(piece, rights, nil)
		for err == nil && n < len(piece) {
			var m int
			m, err = p.conn.Write(piece[n:])
			n += m
		}
		if err != nil {
			break // it has ended: that is seen below
		}
	}
	p.conn.CloseWrite()
	var reports []report
	for {
		r, err := p.read()
		if err != nil {
			break
		}
		reports = append(reports, r)
	}
	return reports, p.ended(t)
}

func TestInitMalformed(t *testing.T) {
	binary := initBinary(t, true)
	const text = "/\x00/nonexistent/program\x00"
	good := goMessage(goMagic, uint32(len(text)), 1, 0, text)
	malformed := []report{{Kind: reportFailed, Detail: 1, Value: int64(unix.EBADMSG)}}
	for _, test := range []struct {
		name        string
		descriptors int
		pieces      [][]byte
		want        []report // nil: it goes without a word
	}{
		{"end of file", 0, nil, nil},
		{"one byte", 3, [][]byte{{1}}, nil},
		{"half a header", 3, [][]byte{good[:80]}, nil},
		{"header alone", 3, [][]byte{good[:len(good)-len(text)]}, nil},
		{"text cut off", 3, [][]byte{good[:len(good)-1]}, nil},
		{"no descriptors", 0, [][]byte{good}, malformed},
		{"two descriptors", 2, [][]byte{good}, malformed},
		{"four descriptors", 4, [][]byte{good}, malformed},
		{"many descriptors", 200, [][]byte{good}, malformed},
		{"descriptors too late", 0, [][]byte{good[:20], good[20:]}, malformed},
		{"wrong magic", 3, [][]byte{goMessage(goMagic+1, uint32(len(text)), 1, 0, text)}, malformed},
		{"no arguments", 3, [][]byte{goMessage(goMagic, uint32(len(text)), 0, 1, text)}, malformed},
		{"more arguments than there are", 3, [][]byte{goMessage(goMagic, uint32(len(text)), 2, 0, text)}, malformed},
		{"more variables than there are", 3, [][]byte{goMessage(goMagic, uint32(len(text)), 1, 1, text)}, malformed},
		{"as many arguments as bytes", 3, [][]byte{goMessage(goMagic, uint32(len(text)), uint32(len(text)), 0, text)}, malformed},
		{"more arguments than bytes", 3, [][]byte{goMessage(goMagic, uint32(len(text)), uint32(len(text))+1, 0, text)}, malformed},
		{"countless arguments", 3, [][]byte{goMessage(goMagic, uint32(len(text)), ^uint32(0), 0, text)}, malformed},
		{"countless variables", 3, [][]byte{goMessage(goMagic, uint32(len(text)), 1, ^uint32(0), text)}, malformed},
		{"no text", 3, [][]byte{goMessage(goMagic, 0, 1, 0, "")}, malformed},
		{"endless text", 3, [][]byte{goMessage(goMagic, ^uint32(0), 1, 0, text)}, malformed},
		{"text past the limit", 3, [][]byte{goMessage(goMagic, goMax+1, 1, 0, text)}, malformed},
		{"no NUL at all", 3, [][]byte{goMessage(goMagic, 4, 1, 0, "/abc")}, malformed},
		{"no NUL at the end", 3, [][]byte{goMessage(goMagic, 4, 1, 0, "/\x00ab")}, malformed},
		{"largest text without NULs", 3, [][]byte{goMessage(goMagic, goMax, goMax, goMax, strings.Repeat("a", goMax))}, malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			reports, status := converse(t, binary, test.descriptors, test.pieces...)
			if diff := cmp.Diff(test.want, reports); diff != "" {
				t.Errorf("reports: %s", diff)
			}
			if !status.Exited() || status.ExitStatus() != 125 {
				t.Errorf("it ended with %#x", status)
			}
		})
	}

	// In pieces a good one is good.
	var single [][]byte
	for _, b := range good {
		single = append(single, []byte{b})
	}
	reports, status := converse(t, binary, 3, single...)
	failed := report{Kind: reportFailed, Detail: 5, Value: int64(unix.ENOENT)}
	if !slices.Contains(reports, failed) || status.ExitStatus() != 125 {
		t.Errorf("byte by byte: %+v, %v", reports, status)
	}
}

func FuzzInit(f *testing.F) {
	const text = "/\x00/nonexistent/program\x00arg\x00A=b\x00"
	f.Add(uint32(goMagic), uint32(len(text)), uint32(2), uint32(1), uint8(3), text)
	f.Add(uint32(goMagic), uint32(0), uint32(0), uint32(0), uint8(0), "")
	f.Add(uint32(goMagic), uint32(3), uint32(3), uint32(3), uint8(3), "\x00\x00\x00")
	f.Add(uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), uint8(4), "\xff")
	binary := initBinary(f, true)
	f.Fuzz(func(t *testing.T, magic, length, argc, envc uint32, descriptors uint8, text string) {
		if strings.Contains(text, "bin") {
			return // it might name a program
		}
		_, status := converse(t, binary, int(descriptors%250), goMessage(magic, length, argc, envc, text))
		if !status.Exited() || status.ExitStatus() != 125 {
			t.Fatalf("it ended with %#x", status)
		}
	})
}
