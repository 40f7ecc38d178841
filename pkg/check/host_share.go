package check

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	idShare = "host.share"
	idClock = "host.clock"
)

const (
	// An offset above wrongClock misleads people who read the times of two nodes side by side; one above worseClock
	// fails where strict. It never fails otherwise: no part of a run compares the clocks of two nodes.
	wrongClock = 2 * time.Second
	worseClock = 30 * time.Second
)

// Share is what is known of the log directory's share. Only pkg/signal looks at it: these facts come from there.
type Share struct {
	Path     string
	Space    *signal.Space  // nil: not asked, or not told
	SpaceErr error          // why it was not told
	Offset   *time.Duration // by how much the server's clock is ahead; nil: not known
}

// JudgeShare judges the room on the share and this node's clock, as far as they are known.
func JudgeShare(s Share) []Finding {
	var findings []Finding
	switch {
	case s.SpaceErr != nil:
		findings = append(findings, unread(idShare, s.Path, s.SpaceErr))
	case s.Space != nil:
		findings = append(findings, judgeRoom(s.Path, *s.Space))
	}
	if s.Offset != nil {
		findings = append(findings, judgeClock(s.Path, *s.Offset))
	}
	return findings
}

// judgeRoom only warns of a share that is nearly full: the daemons write little to it, and the driver's results may go
// elsewhere. A tenth of a share is more than a job needs.
func judgeRoom(path string, s signal.Space) Finding {
	observed, verdict := roomOf(s)
	if verdict != Fail {
		return well(idShare, path, observed)
	}
	return Finding{
		ID: idShare, Verdict: Warn, Strict: true, Class: User, Source: path, Observed: observed,
		Expected: fmt.Sprintf("%s and %d inodes free", prose.Size(leastFree), fewFiles),
		Hint:     "free space there, or give another --log-dir",
	}
}

func judgeClock(path string, offset time.Duration) Finding {
	apart := offset.Abs()
	if apart <= wrongClock {
		return well(idClock, path, fmt.Sprintf("within %s of the share's clock", wrongClock))
	}
	way := "behind"
	if offset < 0 {
		way = "ahead of"
	}
	return Finding{
		ID: idClock, Verdict: Warn, Strict: apart > worseClock, Class: Node, Source: path,
		Observed: fmt.Sprintf("%s %s the share's clock", apart.Round(time.Second/10), way),
		Expected: fmt.Sprintf("within %s of it", wrongClock),
		Hint:     "see whether chronyd or ntpd runs on the node; times in its logs are off by as much",
	}
}
