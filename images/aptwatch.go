package images

import (
	"bufio"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// aptWatcher follows mmdebstrap's and apt's output.
type aptWatcher struct {
	progress Progress
	base     bool // still at the essential packages
	total    int64
	step     Step
	errors   []string // lines that tell of errors
	tail     []string // the last lines
}

var (
	newlyInstalled = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)
	fetched        = regexp.MustCompile(`^Get:\d+ .* \[[0-9.,]+ k?M?B\]$`)
)

func (w *aptWatcher) read(r io.Reader) {
	w.base = true
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		w.line(strings.TrimRight(sc.Text(), "\r"))
	}
	// A line over the limit ends the scan; the writer must not block on that.
	_, _ = io.Copy(io.Discard, r)
}

func (w *aptWatcher) line(s string) {
	if w.tail = append(w.tail, s); len(w.tail) > 5 {
		w.tail = w.tail[1:]
	}
	if strings.HasPrefix(s, "E: ") || strings.HasPrefix(s, "dpkg: error") {
		w.errors = append(w.errors, s)
	}
	kind := ""
	if w.base {
		kind = "base "
	}
	switch {
	case strings.HasPrefix(s, "I: running apt-get update"):
		w.phase("fetch package lists", 0)
	case strings.HasPrefix(s, "I: downloading packages"):
		w.phase("resolve base packages", 0)
	case strings.HasPrefix(s, "I: extracting archives"):
		w.phase("extract base packages", 0)
	case strings.HasPrefix(s, "I: installing remaining packages"):
		w.base = false
		w.phase("resolve packages", 0)
	case newlyInstalled.MatchString(s):
		if n, err := strconv.ParseInt(newlyInstalled.FindStringSubmatch(s)[1], 10, 64); err == nil {
			if w.total = n; n > 0 {
				w.phase("download "+kind+"packages", n)
			}
		}
	case strings.HasPrefix(w.step.Phase, "download ") && fetched.MatchString(s):
		w.count("download " + kind + "packages")
	case w.total == 0: // a hook of mmdebstrap's at work
	case strings.HasPrefix(s, "Unpacking "):
		w.count("unpack " + kind + "packages")
	case strings.HasPrefix(s, "Setting up "):
		w.count("configure " + kind + "packages")
	}
}

func (w *aptWatcher) phase(name string, total int64) {
	w.step = Step{Phase: name, Total: total}
	if total > 0 {
		w.step.Unit = "packages"
	}
	w.progress.report(w.step)
}

func (w *aptWatcher) count(phase string) {
	if w.step.Phase != phase {
		w.phase(phase, w.total)
	}
	if w.step.Done < w.step.Total {
		w.step.Done++
	}
	w.progress.report(w.step)
}

// blame is what to tell of a failed run: its error lines or else its last ones.
func (w *aptWatcher) blame() string {
	lines := w.errors
	if len(lines) == 0 {
		lines = w.tail
	}
	return oneLine(strings.Join(lines, " | "))
}
