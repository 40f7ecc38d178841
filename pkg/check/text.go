package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Style is how a report is shown to people.
type Style struct {
	Verbose bool // also what passed and what was skipped
	Colour  bool // of the verdicts' words, which say it all without one
}

// Text is the report for people: a line that says how it is, and beneath it what is wrong, the worst first.
func (r Report) Text(style Style) string {
	shown := slices.Clone(r.Findings)
	if !style.Verbose {
		shown = slices.DeleteFunc(shown, Finding.Quiet)
	}
	slices.SortStableFunc(shown, func(a, b Finding) int { return cmp.Compare(b.Verdict.rank(), a.Verdict.rank()) })
	var b strings.Builder
	b.WriteString(style.word(r.Verdict, 0) + " " + r.summary() + "\n")
	ids, devices := widths(shown)
	for _, f := range shown {
		style.row(&b, f, ids, devices)
	}
	if n := len(shown); n > 0 && n < len(r.Findings) {
		fmt.Fprintf(&b, "  %s\n", r.quietCount())
	}
	return b.String()
}

// Summary is the report in one line: "FAIL n7: 2 of 21 checks failed, 1 warning
// (0.41 s)". What was skipped is no check of them.
func (r Report) Summary() string { return plain(string(r.Verdict)) + " " + r.summary() }

func (r Report) summary() string {
	said := r.quietCount()
	if counts := r.counts(); counts[Pass]+counts[Skip] < len(r.Findings) {
		said = fmt.Sprintf("%s of %d checks failed", numberOrNone(counts[Fail]), len(r.Findings)-counts[Skip])
		for _, more := range []struct {
			verdict Verdict
			words   string
		}{{Warn, counted(counts[Warn], "warning")}, {Wait, fmt.Sprint(counts[Wait], " not ready yet")}, {Unknown, fmt.Sprint(counts[Unknown], " not known")}} {
			if counts[more.verdict] > 0 {
				said += ", " + more.words
			}
		}
	}
	return fmt.Sprintf("%s: %s (%.2f s)", plain(cmp.Or(r.Host, "this node")), said, r.Took.Seconds())
}

// counts are the findings by verdict; one that we don't know is not known.
func (r Report) counts() map[Verdict]int {
	counts := make(map[Verdict]int)
	for _, f := range r.Findings {
		counts[worst[f.Verdict.rank()]]++
	}
	return counts
}

func (r Report) quietCount() string {
	counts := r.counts()
	said := fmt.Sprintf("%d passed", counts[Pass])
	if counts[Skip] > 0 {
		said += fmt.Sprintf(", %d skipped", counts[Skip])
	}
	return said
}

func counted(n int, what string) string { return fmt.Sprint(n, " ", prose.Noun(n, what)) }

func numberOrNone(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// where names what the finding is about; empty: the node.
func (f Finding) where() string {
	if f.Device == nil {
		return ""
	}
	return plain(f.Device.String())
}

func widths(findings []Finding) (ids, devices int) {
	for _, f := range findings {
		ids = max(ids, utf8.RuneCountInString(plain(f.ID)))
		devices = max(devices, utf8.RuneCountInString(f.where()))
	}
	return ids, devices
}

// verdictWidth is the longest word of a verdict's.
const verdictWidth = len(Unknown)

// row writes a finding, and under it what to do where something is wrong.
func (s Style) row(b *strings.Builder, f Finding, ids, devices int) {
	cells := []string{s.word(f.Verdict, verdictWidth), fmt.Sprintf("%-*s", ids, plain(f.ID))}
	if devices > 0 {
		cells = append(cells, fmt.Sprintf("%-*s", devices, f.where()))
	}
	cells = append(cells, plain(f.Observed))
	b.WriteString("  " + strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
	if f.Quiet() {
		return
	}
	indent := strings.Repeat(" ", 2+verdictWidth+2)
	for _, more := range [][2]string{{"expected", f.Expected}, {"by", f.By}, {"hint", f.Hint}} {
		if more[1] != "" {
			fmt.Fprintf(b, "%s%s: %s\n", indent, more[0], plain(more[1]))
		}
	}
	for _, line := range f.Lines {
		fmt.Fprintf(b, "%s| %s\n", indent, plain(line))
	}
}

// colours are those of ANSI terminals.
var colours = map[Verdict]string{Pass: "32", Skip: "2", Warn: "33", Unknown: "35", Wait: "36", Fail: "1;31"}

// word is a verdict's, in its colour, filled up with blanks.
func (s Style) word(v Verdict, width int) string {
	word := plain(string(v))
	blanks := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(word)))
	if colour := colours[v]; s.Colour && colour != "" {
		word = "\x1b[" + colour + "m" + word + "\x1b[0m"
	}
	return word + blanks
}

// Line is the finding in one line: "gpu.remap GPU 2 (0000:3b:00.0): a row could not be remapped".
func (f Finding) Line() string {
	line := plain(f.ID)
	if where := f.where(); where != "" {
		line += " " + where
	}
	return line + ": " + plain(f.Observed)
}

// Nagios is the exit code by which monitoring, and a prolog, learn of a verdict.
func Nagios(v Verdict) int {
	switch v {
	case Pass, Skip:
		return 0
	case Warn:
		return 1
	case Fail, Wait:
		return 2
	default:
		return 3
	}
}

// mostShown bounds one text of a finding, in characters.
const mostShown = 300

// plain makes a text fit for one line of a terminal: what a device, a file or another node has told may hold anything.
func plain(text string) string { return prose.Line(text, mostShown) }
