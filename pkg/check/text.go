package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Style defines the layout of a report for people.
type Style struct {
	Verbose bool // include checks that passed or were skipped
	Colour  bool // colour the verdicts; the text is complete without colours
}

// Text returns the report for people: a summary line, followed by the problems, the worst first.
func (r Report) Text(style Style) string {
	shown := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Quiet() && !style.Verbose })
	slices.SortStableFunc(shown, func(a, b Finding) int { return cmp.Compare(b.Verdict.rank(), a.Verdict.rank()) })
	ids, devices := 0, 0 // widths of the columns
	for _, f := range shown {
		ids, devices = max(ids, utf8.RuneCountInString(plain(f.ID))), max(devices, utf8.RuneCountInString(f.where()))
	}
	var b strings.Builder
	b.WriteString(style.word(r.Verdict, 0) + " " + r.summary() + "\n")
	for _, f := range shown {
		style.row(&b, f, ids, devices)
	}
	if n := len(shown); n > 0 && n < len(r.Findings) {
		fmt.Fprintf(&b, "  %s\n", quietCount(r.counts()))
	}
	return b.String()
}

// Summary returns the report in one line: "FAIL n7: 2 of 21 checks failed, 1 warning (0.41 s)".
// Skipped checks are not counted.
func (r Report) Summary() string { return plain(string(r.Verdict)) + " " + r.summary() }

// summary returns the summary line without the verdict.
func (r Report) summary() string {
	counts := r.counts()
	said := quietCount(counts)
	if counts[Pass]+counts[Skip] < len(r.Findings) {
		failed := "none"
		if n := counts[Fail]; n > 0 {
			failed = fmt.Sprint(n)
		}
		said = fmt.Sprintf("%s of %d checks failed", failed, len(r.Findings)-counts[Skip])
		for _, more := range []struct {
			verdict Verdict
			words   string
		}{{Warn, prose.Noun(counts[Warn], "warning")}, {Wait, "not ready yet"}, {Unknown, "not known"}} {
			if n := counts[more.verdict]; n > 0 {
				said += fmt.Sprintf(", %d %s", n, more.words)
			}
		}
	}
	return fmt.Sprintf("%s: %s (%.2f s)", plain(cmp.Or(r.Host, "this node")), said, r.Took.Seconds())
}

// counts returns the number of findings by verdict. Verdicts that this version does not know count
// as Unknown.
func (r Report) counts() map[Verdict]int {
	counts := make(map[Verdict]int)
	for _, f := range r.Findings {
		counts[worst[f.Verdict.rank()]]++
	}
	return counts
}

// quietCount returns the number of checks that passed or were skipped, as text.
func quietCount(counts map[Verdict]int) string {
	said := fmt.Sprintf("%d passed", counts[Pass])
	if n := counts[Skip]; n > 0 {
		said += fmt.Sprintf(", %d skipped", n)
	}
	return said
}

// where returns the name of the device that the finding is about. It is empty if the finding is
// about the whole node.
func (f Finding) where() string {
	if f.Device == nil {
		return ""
	}
	return plain(f.Device.String())
}

// verdictWidth is the length of the longest verdict.
const verdictWidth = len(Unknown)

// row writes a finding as one line, followed by the expectation, the setting, the hint and the
// output lines if the finding is not quiet. ids and devices are the widths of the columns.
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

// colours maps verdicts to ANSI colour codes.
var colours = map[Verdict]string{Pass: "32", Skip: "2", Warn: "33", Unknown: "35", Wait: "36", Fail: "1;31"}

// word returns a verdict in its colour, padded with blanks to the width.
func (s Style) word(v Verdict, width int) string {
	word := plain(string(v))
	blanks := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(word)))
	if colour := colours[v]; s.Colour && colour != "" {
		word = "\x1b[" + colour + "m" + word + "\x1b[0m"
	}
	return word + blanks
}

// Line returns the finding in one line: "gpu.remap GPU 2 (0000:3b:00.0): a row could not be
// remapped".
func (f Finding) Line() string {
	line := plain(f.ID)
	if where := f.where(); where != "" {
		line += " " + where
	}
	return line + ": " + plain(f.Observed)
}

// Nagios returns the exit code of a Nagios plugin for a verdict. Monitoring systems and prolog
// scripts use it.
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

// mostShown is the maximum length of one text of a finding, in characters.
const mostShown = 300

// plain makes a text safe for one line of a terminal. Text from a device, a file or another node
// may contain any characters.
func plain(text string) string { return prose.Line(text, mostShown) }
