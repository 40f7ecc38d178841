package exec

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/health"
)

// ReportAnswers says which nodes have failed, and returns the exit code for the answers and the error
// of [Client.Execute]. An error that it returns was not reported.
func ReportAnswers(answers []Result, err error, say func(format string, args ...any)) (code int, _ error) {
	lost := health.OutcomeOfKind(health.PeerLost).Code
	for _, node := range answers {
		nodeCode := node.Exit.Code
		switch {
		case !node.Answered:
			nodeCode = lost
			if err != nil && !errors.Is(err, unix.EPIPE) {
				say("%s: no answer: %v", node.Host, err)
			}
		case node.Exit.Failed != "" || nodeCode != 0:
			say("%s: %s", node.Host, cmp.Or(node.Exit.Failed, node.Exit.Exit))
		}
		if node.Exit.Dropped > 0 {
			say("%s: %d bytes of output were dropped: redirect large output to a file",
				node.Host, node.Exit.Dropped)
		}
		code = max(code, nodeCode)
	}
	switch {
	case errors.Is(err, unix.EPIPE): // the reader has closed the pipe
		return 128 + int(unix.SIGPIPE), nil
	case errors.Is(err, ErrNoAnswer), errors.Is(err, ErrRunOver):
		if len(answers) == 0 {
			say("cannot run the command: %v; check the run with bringupd status; its bringupd may also be "+
				"older than exec", err)
		}
		return max(code, lost), nil
	}
	return code, err
}
