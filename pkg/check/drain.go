package check

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxDrainReason is the maximum length of the reason, in characters. The launcher shows it on one
// line.
const maxDrainReason = 160

// DrainCommand returns a shell command with which an administrator can take the node out of
// service, built by drain. It returns an empty string if no check has failed because of the node
// itself, or if the host name contains characters that are unsafe in a shell.
func DrainCommand(r Report, drain func(host, reason string) string) string {
	var failed []Finding
	for _, f := range r.Findings {
		if f.Verdict == Fail && f.Class == ClassNode {
			failed = append(failed, f)
		}
	}
	if len(failed) == 0 || r.Host == "" || strings.HasPrefix(r.Host, "-") || strings.ContainsFunc(r.Host, isInvalidHostRune) {
		return ""
	}
	more := ""
	if n := len(failed) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	reason := textutil.TruncateText("bringupd "+failed[0].OneLine(), maxDrainReason-len(more)) + more
	return drain(r.Host, shellReplacer.Replace(reason))
}

// shellReplacer replaces characters that have a special meaning inside double quotes in a shell,
// including interactive shells.
var shellReplacer = strings.NewReplacer(`"`, "'", "`", "'", `\`, "/", "$", "", "!", ".")

// isInvalidHostRune reports whether a character cannot be part of a host name.
func isInvalidHostRune(r rune) bool {
	const accepted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return !strings.ContainsRune(accepted, r)
}
