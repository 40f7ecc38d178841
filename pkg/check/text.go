package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// FormatText returns the report for people: a summary line, followed by the problems, the worst
// first. If verbose is set, it includes checks that passed or were skipped.
func (r Report) FormatText(verbose bool) string {
	shown := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		return f.IsQuiet() && !verbose
	})
	slices.SortStableFunc(shown, func(a, b Finding) int {
		return cmp.Compare(b.Verdict.severity(), a.Verdict.severity())
	})
	ids, devices := 0, 0 // widths of the columns
	for _, f := range shown {
		ids = max(ids, utf8.RuneCountInString(sanitizeLine(f.ID)))
		devices = max(devices, utf8.RuneCountInString(f.deviceText()))
	}
	var b strings.Builder
	b.WriteString(r.SummaryLine() + "\n")
	for _, f := range shown {
		f.writeRow(&b, ids, devices)
	}
	if n := len(shown); n > 0 && n < len(r.Findings) {
		fmt.Fprintf(&b, "  %s\n", quietText(r.countVerdicts()))
	}
	return b.String()
}

// SummaryLine returns the report in one line: "FAIL n7: 2 of 21 checks failed, 1 warning (0.41 s)".
// Skipped checks are not counted.
func (r Report) SummaryLine() string {
	counts := r.countVerdicts()
	text := quietText(counts)
	if counts[Pass]+counts[Skip] < len(r.Findings) {
		failed := "none"
		if n := counts[Fail]; n > 0 {
			failed = fmt.Sprint(n)
		}
		text = fmt.Sprintf("%s of %d checks failed", failed, len(r.Findings)-counts[Skip])
		words := map[Verdict]string{
			Warn: textutil.PluralForm(counts[Warn], "warning"), Wait: "not ready yet", Unknown: "unknown",
		}
		for _, verdict := range []Verdict{Warn, Wait, Unknown} {
			if n := counts[verdict]; n > 0 {
				text += fmt.Sprintf(", %d %s", n, words[verdict])
			}
		}
	}
	host := sanitizeLine(cmp.Or(r.Host, "this node"))
	return fmt.Sprintf("%s %s: %s (%.2f s)", sanitizeLine(string(r.Verdict)), host, text, r.Took.Seconds())
}

// countVerdicts returns the number of findings by verdict. Verdicts that this version does not know
// count as Unknown.
func (r Report) countVerdicts() map[Verdict]int {
	counts := make(map[Verdict]int)
	for _, f := range r.Findings {
		counts[verdictOrder[f.Verdict.severity()]]++
	}
	return counts
}

// quietText returns the number of checks that passed or were skipped, as text.
func quietText(counts map[Verdict]int) string {
	text := fmt.Sprintf("%d passed", counts[Pass])
	if n := counts[Skip]; n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	return text
}

// deviceText returns the name of the device that the finding is about. It is empty if the finding
// is about the whole node.
func (f Finding) deviceText() string {
	if f.Device == nil {
		return ""
	}
	return sanitizeLine(f.Device.String())
}

const verdictWidth = len(Unknown)

// writeRow writes the finding as one line, followed by the expectation, the setting, the hint and the
// output lines if the finding is not quiet. ids and devices are the widths of the columns.
func (f Finding) writeRow(b *strings.Builder, ids, devices int) {
	cells := []string{
		fmt.Sprintf("%-*s", verdictWidth, sanitizeLine(string(f.Verdict))),
		fmt.Sprintf("%-*s", ids, sanitizeLine(f.ID)),
	}
	if devices > 0 {
		cells = append(cells, fmt.Sprintf("%-*s", devices, f.deviceText()))
	}
	cells = append(cells, sanitizeLine(f.Observed))
	b.WriteString("  " + strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
	if f.IsQuiet() {
		return
	}
	indent := strings.Repeat(" ", 2+verdictWidth+2)
	for _, more := range [][2]string{
		{"expected", f.Expected}, {"by", f.ChangedBy}, {"hint", f.Hint},
	} {
		if more[1] != "" {
			fmt.Fprintf(b, "%s%s: %s\n", indent, more[0], sanitizeLine(more[1]))
		}
	}
	for _, line := range f.Lines {
		fmt.Fprintf(b, "%s| %s\n", indent, sanitizeLine(line))
	}
}

// OneLine returns the finding in one line: "gpu.remap GPU 2 (0000:3b:00.0): a row could not be
// remapped".
func (f Finding) OneLine() string {
	line := sanitizeLine(f.ID)
	if where := f.deviceText(); where != "" {
		line += " " + where
	}
	return line + ": " + sanitizeLine(f.Observed)
}

// NagiosExitCode returns the exit code of a Nagios plugin for a verdict. Monitoring systems and
// prolog scripts use it.
func NagiosExitCode(v Verdict) int {
	codes := map[Verdict]int{Pass: 0, Skip: 0, Warn: 1, Fail: 2, Wait: 2}
	if code, known := codes[v]; known {
		return code
	}
	return 3
}

// maxTextLength is the maximum length of one text of a finding, in characters.
const maxTextLength = 300

// sanitizeLine makes a text safe for one line of a terminal. Text from a device, a file or another
// node may contain any characters.
func sanitizeLine(text string) string { return textutil.SingleLine(text, maxTextLength) }

// maxDrainReason is the maximum length of the reason, in characters. The launcher shows it on one
// line.
const maxDrainReason = 160

// DrainCommand returns a shell command with which an administrator can take the node out of
// service: drain is that of the launcher. It returns an empty string if no check has failed because of the node
// itself, or if the host name contains characters that are unsafe in a shell.
func DrainCommand(r Report, drain string) string {
	failed := slices.DeleteFunc(FilterByVerdict(r.Findings, Fail), func(f Finding) bool {
		return f.Class != ClassNode
	})
	unsafe := drain == "" || r.Host == "" || strings.HasPrefix(r.Host, "-") ||
		strings.ContainsFunc(r.Host, isInvalidHostRune)
	if len(failed) == 0 || unsafe {
		return ""
	}
	more := ""
	if n := len(failed) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	reason := textutil.TruncateText("bringupd "+failed[0].OneLine(), maxDrainReason-len(more)) + more
	return launcher.ForHost(drain, r.Host, shellReplacer.Replace(reason))
}

// shellReplacer replaces characters that have a special meaning inside double quotes in a shell,
// including interactive shells.
var shellReplacer = strings.NewReplacer(`"`, "'", "`", "'", `\`, "/", "$", "", "!", ".")

func isInvalidHostRune(r rune) bool {
	const accepted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return !strings.ContainsRune(accepted, r)
}
