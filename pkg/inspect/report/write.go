package report

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
)

// Format is an output format of a report.
type Format string

// The output formats.
const (
	FormatHTML Format = "html"
	FormatJSON Format = "json"
)

// Write writes the view in the given format.
func (v *View) Write(w io.Writer, format Format) error {
	if format == FormatHTML {
		return v.writePage(w, 0)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// WriteFile writes the report to a file that only this user can read, because it quotes logs that
// others cannot read. It returns the absolute path. If the file cannot be written and fallbackDir is
// not empty, it writes the file of that name there.
func (v *View) WriteFile(path, fallbackDir string, format Format) (string, error) {
	var b strings.Builder
	err := v.Write(&b, format)
	if err == nil {
		err = files.ReplaceFile(path, []byte(b.String()), 0o600)
	}
	if err != nil && fallbackDir != "" {
		path = filepath.Join(fallbackDir, path)
		err = files.ReplaceFile(path, []byte(b.String()), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("cannot write the report: %v", err)
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return path, nil
}

// Cause returns the label of a failure in the chain.
func (e CauseEntry) Cause() string {
	if e.First {
		return "first cause"
	}
	return "consequence"
}

// splitLines returns the lines before the error, and those after it. If no line has the error, all
// lines are before it.
func (e CauseEntry) splitLines() (before, after []string) {
	text := strings.TrimSuffix(e.Error, "…") // a long line is cut
	for i, line := range slices.Backward(e.Lines) {
		if text != "" && strings.Contains(line, text) {
			return e.Lines[:i], e.Lines[i+1:]
		}
	}
	return e.Lines, nil
}

// Before returns the last lines, up to the error.
func (e CauseEntry) Before() []string {
	before, _ := e.splitLines()
	return before
}

// After returns the lines that follow the error.
func (e CauseEntry) After() []string {
	_, after := e.splitLines()
	return after
}

// maxImportantLogs is the number of logs that are shown first. The list begins with the logs of the
// driver, the head and the nodes that caused the failure.
const maxImportantLogs = 6

// Important returns the important logs.
func (v *View) Important() []LogTail { return v.Logs[:min(len(v.Logs), maxImportantLogs)] }

// Note describes which part of the file the lines are; it is empty if they are the whole file.
func (l LogTail) Note() string {
	switch {
	case l.Error != "":
		return l.Error
	case l.Cut:
		return fmt.Sprintf("the last part of %s bytes", textutil.GroupThousands(l.Size))
	case l.Size == 0:
		return "empty"
	default:
		return ""
	}
}

// Note describes problems of a phase.
func (s PhaseStat) Note() string {
	var parts []string
	if s.Failed > 0 {
		parts = append(parts, fmt.Sprintf("failed on %d", s.Failed))
	}
	if s.Open > 0 {
		parts = append(parts, fmt.Sprintf("no end on %d", s.Open))
	}
	return strings.Join(parts, ", ")
}
