package rolefile

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Error is a mistake in the roles of a file.
type Error struct {
	Line    int
	Problem string
}

// Errors are the mistakes in the roles of a file, sorted by line.
type Errors []*Error

// Limits of messages.
const (
	maxErrors        = 100 // the mistakes after these are not recorded
	maxShownErrors   = 10  // the mistakes after these are not listed
	maxProblemLength = 1000
)

func (e Errors) Error() string { return e.describe("line ") }

// InFile returns the text of the errors with the path of the file before each line number.
func (e Errors) InFile(path string) string { return e.describe(path + ":") }

func (e Errors) describe(beforeLine string) string {
	var lines []string
	for _, wrong := range e {
		lines = append(lines, fmt.Sprintf("cannot use %s%d: %s", beforeLine, wrong.Line, wrong.Problem))
	}
	return textutil.JoinLimited(lines, maxShownErrors, "\n")
}

type errorList struct {
	found  Errors
	listed map[string]bool // lists of keys that a message has
}

func newErrorList() *errorList { return &errorList{listed: make(map[string]bool)} }

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
