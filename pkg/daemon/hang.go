package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/why"
	"github.com/bringupd/bringupd/pkg/world"
)

// vigil tells whether the ranks of this node do anything.
func (n *node) vigil(here *world.Node) why.Vigil {
	told := 0
	return why.Vigil{
		Timeout: n.cfg.World.Hang, OutputOnly: n.cfg.World.HangOutput, Ranks: here.Running,
		Tell: func(bool) {
			told++
			n.Logged(n.Mark(signal.Nodes, signal.IdleName(n.id.Rank, n.id.Size, told)))
		},
	}
}

// hangs tells whether no rank of any node does anything.
func (h *head) hangs(l signal.Listing) bool {
	idle, busy := l.IdleNodes(), h.roster.Missing(l, signal.Ended)
	return h.cfg.World.Hang > 0 && len(busy) > 0 && len(signal.Without(busy, idle)) == 0
}

// hang is the failure of a world in which nobody does anything. What each rank is doing
// is told before.
func (h *head) hang(ctx context.Context) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, pictureTime, errDeadline)
	defer cancel()
	picture, err := why.Told(ctx, h.Dir.Path(), "--stacks")
	if err != nil {
		h.Log.Warn("cannot tell what the ranks are doing", zap.Error(err))
	} else {
		h.Log.Warn("what the ranks are doing:\n" + picture)
	}
	sign := "used the processor or printed anything"
	if h.cfg.World.HangOutput {
		sign = "printed anything"
	}
	return health.Failed(health.Deadline, "no rank has %s for %s (--hang-timeout); %s has what each of them was doing",
		sign, h.cfg.World.Hang, h.children.LogName("daemon"))
}

// pictureTime bounds how long stacks may take to be read on all nodes.
const pictureTime = time.Minute
