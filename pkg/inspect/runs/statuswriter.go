package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// StatusWriter writes the states of a run, or of a list of runs, one after the other. It is not safe for
// concurrent use.
type StatusWriter struct {
	Out   *os.File
	Style timeline.TextStyle
	// Updates reports that more than one state is written: on a terminal each overwrites the one
	// before, and elsewhere each change is a line, and the last state is whole.
	Updates bool

	drawnLines int    // number of lines on the terminal
	lastShown  []byte // the state before, without times: its first line, or as JSON
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
		return w.writeChange(status)
	}
	if status.Over() {
		w.Style.Width = 0
	}
	lines := strings.Split(strings.TrimSuffix(status.Text(w.Style), "\n"), "\n")
	if !status.Over() {
		lines = lines[:min(len(lines), max(1, height-1))]
	}
	return w.redraw(lines)
}

// WriteList writes a list as text. On a terminal without room for all runs, the oldest are left out.
func (w *StatusWriter) WriteList(list List) error {
	text := list.Text(time.Now())
	width, height := terminalSize(w.Out)
	switch isFirst := w.lastShown == nil; {
	case !w.Updates:
	case height > 0:
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if more := len(lines) - max(2, height-1); more > 0 {
			lines = slices.Delete(lines, 1, 1+more)
		}
		for i := range lines {
			lines[i] = textutil.TruncateText(lines[i], cmp.Or(width, len(lines[i])))
		}
		return w.redraw(lines)
	case !w.hasChanged([]byte(list.withoutTimes().Text(time.Time{}))):
		return nil
	case !isFirst:
		text = "\n" + text
	}
	_, err := io.WriteString(w.Out, text)
	return err
}

// redraw overwrites the lines that were drawn before.
func (w *StatusWriter) redraw(lines []string) error {
	_, err := io.WriteString(w.Out, redrawLines(lines, w.drawnLines))
	w.drawnLines = len(lines)
	return err
}

// writeChange writes the first line of the state, with the time, if it has changed. A run that is
// over, or whose daemons may be gone, is shown whole.
func (w *StatusWriter) writeChange(status timeline.Status) error {
	firstLine := func(s timeline.Status) string {
		line, _, _ := strings.Cut(s.Text(w.Style), "\n")
		return line
	}
	if !w.hasChanged(fmt.Appendf(nil, "%s %t", firstLine(status.WithoutTimes()), status.Silent)) {
		return nil
	}
	text := status.At.Format(time.TimeOnly) + " " + firstLine(status) + "\n"
	if status.Over() || status.Silent {
		text = status.Text(w.Style)
	}
	_, err := io.WriteString(w.Out, text)
	return err
}

func (w *StatusWriter) hasChanged(shown []byte) bool {
	changed := !bytes.Equal(shown, w.lastShown)
	w.lastShown = shown
	return changed
}

// WriteJSON writes the state as JSON: one object, or with updates one line for each change.
func (w *StatusWriter) WriteJSON(status timeline.Status) error {
	return w.writeJSON(status, status.WithoutTimes())
}

// WriteListJSON writes a list as WriteJSON writes a state.
func (w *StatusWriter) WriteListJSON(list List) error { return w.writeJSON(list, list.withoutTimes()) }

func (w *StatusWriter) writeJSON(state, withoutTimes any) error {
	encoder := json.NewEncoder(w.Out)
	if !w.Updates {
		encoder.SetIndent("", "  ")
		return encoder.Encode(state)
	}
	current, err := json.Marshal(withoutTimes)
	if err != nil || !w.hasChanged(current) {
		return err
	}
	return encoder.Encode(state)
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

func terminalSize(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), cmp.Or(int(size.Row), 24)
}
