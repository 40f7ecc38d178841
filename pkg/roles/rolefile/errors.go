package rolefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Error is a mistake in the roles of a file.
type Error struct {
	Line    int
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("cannot use line %d: %s", e.Line, e.Problem) }

// Errors are the mistakes in the roles of a file, sorted by line.
type Errors []*Error

// Limits of messages.
const (
	maxErrors        = 100 // the mistakes after these are not recorded
	maxShownErrors   = 10  // the mistakes after these are not listed
	maxProblemLength = 1000
)

func (e Errors) Error() string {
	return e.describe(func(wrong *Error) string { return wrong.Error() })
}

// InFile returns the text of the errors with the path of the file before each line number.
func (e Errors) InFile(path string) string {
	return e.describe(func(wrong *Error) string {
		return fmt.Sprintf("cannot use %s:%d: %s", path, wrong.Line, wrong.Problem)
	})
}

func (e Errors) describe(text func(*Error) string) string {
	var lines []string
	for _, wrong := range e[:min(len(e), maxShownErrors)] {
		lines = append(lines, text(wrong))
	}
	if more := len(e) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// errorList collects the mistakes of a file.
type errorList struct{ found Errors }

// refuse records a mistake at a node of the file.
func (l *errorList) refuse(at *yaml.Node, format string, args ...any) {
	l.refuseLine(at.Line, format, args...)
}

func (l *errorList) refuseLine(line int, format string, args ...any) {
	wrong := &Error{Line: line, Problem: textutil.SingleLine(fmt.Sprintf(format, args...), maxProblemLength)}
	if !l.isFull() && !slices.ContainsFunc(l.found, func(e *Error) bool { return *e == *wrong }) {
		l.found = append(l.found, wrong)
	}
}

// isFull reports whether no other mistake is recorded.
func (l *errorList) isFull() bool { return len(l.found) >= maxErrors }

// err returns the mistakes as an error, or nil if there are none.
func (l *errorList) err() error {
	if len(l.found) == 0 {
		return nil
	}
	slices.SortStableFunc(l.found, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return l.found
}
