package check

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// mostReason bounds what a launcher is told, in characters: it has a line for it.
const mostReason = 160

// DrainLine is the command by which who runs the cluster takes the node out of service, as drain has it, to be copied
// into a shell. It is empty where nothing failed that another node would mend, or where no shell should be given the
// node's name.
func DrainLine(r Report, drain func(host, reason string) string) string {
	var failed []Finding
	for _, f := range r.Findings {
		if f.Verdict == Fail && f.Class == Node {
			failed = append(failed, f)
		}
	}
	if len(failed) == 0 || r.Host == "" || strings.HasPrefix(r.Host, "-") || strings.ContainsFunc(r.Host, unlikeHost) {
		return ""
	}
	more := ""
	if n := len(failed) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	reason := prose.Cut("bringupd "+failed[0].Line(), mostReason-len(more)) + more
	return drain(r.Host, unquoted.Replace(reason))
}

// unquoted replaces what means something to a shell between double quotes, an interactive one included.
var unquoted = strings.NewReplacer(`"`, "'", "`", "'", `\`, "/", "$", "", "!", ".")

// unlikeHost tells whether a character is in no host's name.
func unlikeHost(r rune) bool {
	const accepted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return !strings.ContainsRune(accepted, r)
}
