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
	shown := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Quiet() && !style.Verbose })
	slices.SortStableFunc(shown, func(a, b Finding) int { return cmp.Compare(b.Verdict.rank(), a.Verdict.rank()) })
	ids, devices := 0, 0 // the longest
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

// Summary is the report in one line: "FAIL n7: 2 of 21 checks failed, 1 warning
// (0.41 s)". What was skipped is no check of them.
func (r Report) Summary() string { return plain(string(r.Verdict)) + " " + r.summary() }

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

// counts are the findings by verdict; one that we don't know is not known.
func (r Report) counts() map[Verdict]int {
	counts := make(map[Verdict]int)
	for _, f := range r.Findings {
		counts[worst[f.Verdict.rank()]]++
	}
	return counts
}

// quietCount tells of how many there is nothing to do.
func quietCount(counts map[Verdict]int) string {
	said := fmt.Sprintf("%d passed", counts[Pass])
	if n := counts[Skip]; n > 0 {
		said += fmt.Sprintf(", %d skipped", n)
	}
	return said
}

// where names what the finding is about; empty: the node.
func (f Finding) where() string {
	if f.Device == nil {
		return ""
	}
	return plain(f.Device.String())
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
