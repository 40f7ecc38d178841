package health

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxErrorLine is the maximum length of an error line in characters.
const maxErrorLine = 200

// FindErrorLine returns the line of a failed program's output that says why it has failed, or an
// empty string if no line certainly does. code is its exit code as a shell shows it: 128+n for
// signal n. outputs has the last lines of its outputs, the most likely one first.
//
// The line has at most 200 characters, and secrets are replaced.
func FindErrorLine(code int, outputs ...[]string) string {
	if code == 0 {
		return ""
	}
	for _, lines := range outputs {
		if text := findError(cleanLines(lines), code); text != "" {
			return formatError(text)
		}
	}
	return ""
}

// stillRuns stands for the exit code of a program that has none yet.
const stillRuns = -1

// FindLastError returns the error with which the output of a program ends that still runs, or an
// empty string if it ends with none. merged has the last lines of its outputs in the order of their
// arrival, and outputs those of each: an error counts only if hardly anything else came after it.
// The result is like that of [FindErrorLine].
func FindLastError(merged []string, outputs ...[]string) string {
	merged = tellingLines(merged)
	merged = merged[max(0, len(merged)-1-maxLateLines):]
	for _, lines := range outputs {
		telling := tellingLines(lines)
		if len(telling) == 0 || !slices.Contains(merged, telling[len(telling)-1]) {
			continue
		}
		if text := findError(cleanLines(lines), stillRuns); text != "" {
			return formatError(text)
		}
	}
	return ""
}

// maxLateLines is the maximum number of lines that another output may have after an error: what was
// printed just before it may arrive later.
const maxLateLines = 3

// tellingLines returns lines, cleaned, that are no epilogues.
func tellingLines(lines []string) []string {
	return slices.DeleteFunc(cleanLines(lines), isEpilogue)
}

// formatError returns the text of an error as a line for people.
func formatError(text string) string {
	return textutil.TruncateText(textutil.RedactText(strings.TrimSpace(text)), maxErrorLine)
}

// errorFormat is the format in which a language, a library or a shell reports the error that ends
// its program.
type errorFormat struct {
	codes []int // exit codes with which such a program ends; nil: any but 0
	// needsCode marks a format of other lines, too: it counts only with one of codes.
	needsCode bool
	// find returns the text of the error if it begins with the line at an index, and the index
	// after its last line, which is 0 if no error begins there.
	find func(lines []string, at int) (text string, end int)
	// mayGoOn reports whether other lines may follow an error, of which before is the line before
	// it; nil: none, because the program does nothing after it.
	mayGoOn func(before string, rest []string) bool
	// isOuter marks the report of a program about another one, whose own error says more.
	isOuter bool
}

// foundError is an error in the output of a program.
type foundError struct {
	format     *errorFormat
	text       string
	begin, end int // the lines
}

// isOuter reports whether the error is a consequence of another one, which says more.
func (e foundError) isOuter() bool { return e.format.isOuter || outerErrors().MatchString(e.text) }

// findError returns the error in lines from which prefixes have been removed.
func findError(lines []string, code int) string {
	var found []foundError
	for at := 0; at < len(lines); {
		next := at + 1
		for i := range errorFormats {
			format := &errorFormats[i]
			if isOther := format.codes != nil && !slices.Contains(format.codes, code); isOther &&
				(code != stillRuns || format.needsCode) {
				continue
			}
			if text, end := format.find(lines, at); end > at {
				found = append(found, foundError{format, text, at, end})
				next = end
				break
			}
		}
		at = next
	}
	// The newest error that nothing follows is the reason of the end, or the one before it of which
	// it is a consequence.
	best := ""
	for i, e := range slices.Backward(found) {
		rest := lines[e.end:]
		if i+1 < len(found) { // of which the outer error is a consequence
			rest = lines[e.end:found[i+1].begin]
		}
		before := ""
		if e.begin > 0 {
			before = lines[e.begin-1]
		}
		isLast := !slices.ContainsFunc(rest, func(line string) bool { return !isEpilogue(line) })
		isNear := best != "" && len(rest) <= maxOtherLines
		if !isLast && !isNear && (e.format.mayGoOn == nil || !e.format.mayGoOn(before, rest)) {
			return best
		}
		// A symptom of the end of another process may be explained by the error just before it.
		isSymptom := i > 0 && matchSymptom(e.text) != "" && !slices.ContainsFunc(
			lines[found[i-1].end:e.begin], func(line string) bool { return !isEpilogue(line) })
		if !isSymptom && !e.isOuter() {
			return e.text
		}
		best = cmp.Or(best, e.text)
	}
	return best
}

// epilogues are lines that programs print at their end, whatever has ended them.
var epilogues = textutil.CompileLazily(`^(?:wandb: .*|Exception ignored in.*|sys:1: .*` +
	`|.*ResourceWarning: .*|.*resource_tracker.*|\[[WE]\d+ .*|.*destroy_process_group.*` +
	`|exit status \d+|Aborted.*|.*\(core dumped\).*|Killed|note: run with .RUST_BACKTRACE.*` +
	`|.* FAILED|Failures:|Root Cause \(first observed failure\):|\[\d+\]:` + // torchrun
	`|\[[\d :,.-]+\] \[(?:INFO|ERROR)\] \[launch\.py.*` + // the launcher of deepspeed
	`|- (?:objects|bytes) restored: \d+|Refer to the documentation on how to address the out of memory` +
	` issue: .*` + // in Ray's report about memory
	`|srun: .*|slurmstepd\S*: error: \*\*\* STEP .*|-{5,}|={5,}|\*{5,})$`)

// isEpilogue reports whether a line says nothing about what has ended a program.
func isEpilogue(line string) bool {
	return strings.TrimSpace(line) == "" || epilogues().MatchString(line)
}

// The prefixes that frameworks put before the lines of their processes, and the colours of
// terminals.
var (
	linePrefix = textutil.CompileLazily(`^(?:(?:\[[\w.:-]*\d\]:` + // [rank0]: or torchrun --tee's [ROLE0]:
		`|\([^()]*(?:\([^()]*\))?[^()]*pid=\d+[^)]*\)) ?)+` +
		`(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?`) // of vLLM's log
	colours = textutil.CompileLazily(`\x1b\[[\d;]*[A-Za-z]`)
)

// cleanLines returns lines without colours and prefixes.
func cleanLines(lines []string) (clean []string) {
	for _, line := range lines {
		line = colours().ReplaceAllString(line, "")
		clean = append(clean, strings.TrimRight(linePrefix().ReplaceAllString(line, ""), " \t\r"))
	}
	return clean
}
