package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// StatusWriter writes the states of a run, one after the other. It is not safe for concurrent use.
type StatusWriter struct {
	Out   *os.File
	Style timeline.TextStyle
	// Updates reports that more than one state is written: on a terminal each overwrites the one
	// before, and elsewhere only changes are written.
	Updates bool

	drawnLines int             // number of lines on the terminal
	lastLines  map[string]bool // lines of the state before
	lastJSON   []byte          // the state before, without times
}

// WriteText writes the state as text.
func (w *StatusWriter) WriteText(status timeline.Status) error {
	width, height := terminalSize(w.Out)
	if !w.Updates {
		_, err := io.WriteString(w.Out, status.Text(w.Style))
		return err
	}
	w.Style.Width = width
	if height == 0 {
		return w.writeChanges(status)
	}
	if status.Over() {
		w.Style.Width = 0
	}
	lines := strings.Split(strings.TrimSuffix(status.Text(w.Style), "\n"), "\n")
	if !status.Over() {
		lines = lines[:min(len(lines), max(1, height-1))]
	}
	_, err := io.WriteString(w.Out, redrawLines(lines, w.drawnLines))
	w.drawnLines = len(lines)
	return err
}

// writeChanges writes the lines that differ from those of the state before, with the time.
func (w *StatusWriter) writeChanges(status timeline.Status) error {
	if w.lastLines == nil {
		w.lastLines = make(map[string]bool)
	}
	var changed strings.Builder
	for _, line := range status.ChangedLines(w.Style, w.lastLines) {
		changed.WriteString(status.At.Format(time.TimeOnly) + " " + line + "\n")
	}
	_, err := io.WriteString(w.Out, changed.String())
	return err
}

// WriteJSON writes the state as JSON: one object, or with updates one line for each change.
func (w *StatusWriter) WriteJSON(status timeline.Status) error {
	encoder := json.NewEncoder(w.Out)
	if !w.Updates {
		encoder.SetIndent("", "  ")
		return encoder.Encode(status)
	}
	current, err := json.Marshal(status.WithoutTimes())
	if err != nil || bytes.Equal(current, w.lastJSON) {
		return err
	}
	w.lastJSON = current
	return encoder.Encode(status)
}

// redrawLines returns lines that overwrite those drawn before.
func redrawLines(lines []string, drawn int) string {
	var b strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", drawn)
	}
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// terminalSize returns the size of the terminal, or zeroes if file is not a terminal.
func terminalSize(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), cmp.Or(int(size.Row), 24)
}
