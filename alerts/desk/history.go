package desk

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/google/renameio/v2"

	"proctor/alerts"
	"proctor/alerts/spike"
)

// A history is the file of what a Watch has learned. Alarms go on without it, by the thresholds of
// young series.
type history struct {
	file  string
	watch *alerts.Watch
	log   *slog.Logger
}

func (h *history) read() {
	data, err := os.ReadFile(h.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var past *spike.History
	if err == nil {
		past, err = spike.ReadHistory(bytes.NewReader(data))
	}
	if err != nil {
		h.log.Error("what is usual is not known; it is learned anew", "file", h.file, "error", err)
		return
	}
	h.watch.Learn(past)
}

func (h *history) write() {
	var data bytes.Buffer
	err := h.watch.History().Write(&data)
	if err == nil {
		err = renameio.WriteFile(h.file, data.Bytes(), 0o600)
	}
	if err != nil {
		h.log.Warn("what is usual can't be kept: after a restart it is learned anew", "file", h.file, "error", err)
	}
}
