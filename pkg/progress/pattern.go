// Package progress computes how far a program has got: it finds steps in lines of output, and
// derives their rate, the steps that restarts have lost, and the goodput. It has no side effects.
package progress

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Pattern finds steps in lines of output.
type Pattern struct{ expr *regexp.Regexp }

// ParsePattern parses a regular expression with exactly one group, which matches the number of a
// step.
func ParsePattern(text string) (*Pattern, error) {
	expr, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("%w: give an expression of RE2's syntax, as 'step (\\d+)'", err)
	}
	if expr.NumSubexp() != 1 {
		return nil, fmt.Errorf("it has %d groups: give one, around the number, as in 'step "+
			"(\\d+)'; (?:…) does not count", expr.NumSubexp())
	}
	return &Pattern{expr}, nil
}

// colourCodes matches the sequences by which programs colour their output. They are ignored.
var colourCodes = textutil.CompileLazily(`\x1b\[[0-9;]*[A-Za-z]`)

// LastStep returns the newest step in lines, which are separated by newlines or, as those of a
// progress bar, by carriage returns. found is false if there is none.
func (p *Pattern) LastStep(lines []byte) (step float64, found bool) {
	for len(lines) > 0 {
		start := bytes.LastIndexAny(lines, "\r\n") + 1
		line := lines[start:]
		if bytes.IndexByte(line, '\x1b') >= 0 {
			line = colourCodes().ReplaceAll(line, nil)
		}
		if match := p.expr.FindSubmatchIndex(line); match != nil && match[2] >= 0 {
			if step, err := ParseStep(string(line[match[2]:match[3]])); err == nil {
				return step, true
			}
		}
		lines = lines[:max(0, start-1)]
	}
	return 0, false
}

// groupMarks removes the marks between groups of digits, as in 1,200 or 1_200.
var groupMarks = strings.NewReplacer(",", "", "_", "", " ", "")

// ParseStep parses the number of a step. It may have a fraction, such as an epoch of 1.25.
func ParseStep(text string) (float64, error) {
	step, err := strconv.ParseFloat(groupMarks.Replace(text), 64)
	if err != nil || strings.ContainsAny(text, "xX") || math.IsNaN(step) || step < 0 || step > MaxStep {
		return 0, errors.New("give a number of at least 0, as in 1200 or 1.25")
	}
	return step, nil
}

// MaxStep is the maximum number of a step.
const MaxStep = 1e15

// FormatStep formats a step or a rate for people, with at most three decimals.
func FormatStep(step float64) string {
	return strconv.FormatFloat(math.Round(step*1000)/1000, 'f', -1, 64)
}
