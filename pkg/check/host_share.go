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
func JudgeShare(share Share) []Finding {
	s := Sheet{Each: Finding{ID: idShare, Source: share.Path}}
	share.judgeRoom(&s)
	s.Each.ID = idClock
	share.judgeClock(&s)
	return s.Found
}

// judgeRoom only warns of a share that is nearly full: the daemons write little to it, and the driver's results may go
// elsewhere. A tenth of a share is more than a job needs.
func (share Share) judgeRoom(s *Sheet) {
	if share.SpaceErr != nil {
		s.unread(share.SpaceErr)
		return
	}
	if share.Space == nil {
		return
	}
	observed, verdict := roomOf(*share.Space)
	if verdict != Fail {
		s.Pass(observed)
		return
	}
	s.Warn(User, observed, fmt.Sprintf("%s and %d inodes free", prose.Size(leastFree), fewFiles),
		"free space there, or give another --log-dir").Strict = true
}

func (share Share) judgeClock(s *Sheet) {
	if share.Offset == nil {
		return
	}
	apart := share.Offset.Abs()
	if apart <= wrongClock {
		s.Pass(fmt.Sprintf("within %s of the share's clock", wrongClock))
		return
	}
	way := "behind"
	if *share.Offset < 0 {
		way = "ahead of"
	}
	s.Warn(Node, fmt.Sprintf("%s %s the share's clock", apart.Round(time.Second/10), way), fmt.Sprintf("within %s of it", wrongClock),
		"see whether chronyd or ntpd runs on the node; times in its logs are off by as much").Strict = apart > worseClock
}
