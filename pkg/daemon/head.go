package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/cards"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/world"
)

// head is node 0, which also leads the other nodes.
type head struct {
	*node
	nodes    *signal.Watch   // watches Nodes
	lines    *lifeline.Lines // nil if there are no peer links
	roster   *team.Roster
	deaths   *deaths
	assembly *assembly

	requests  *request.Head
	chronicle *cards.Chronicle
	canary    *run.Canary
	stage     stage

	gate        time.Duration // time from the start of the head to the open gate; 0 before
	endpoint    framework.Endpoint
	driver      process.Handle // nil before it runs
	world       *world.Head    // nil if there are no ranks
	slowSandbox sync.WaitGroup // the head's own sandbox while it starts
}

// stage is the progress of the head's own part of the bring-up.
type stage struct {
	serving  atomic.Bool // the head's service is up
	counting atomic.Bool // the framework's list of members is polled
	gpus     atomic.Bool // some node has GPUs
}

// newHead returns the head on node n. Nothing runs yet.
func newHead(n *node) *head {
	canary := &run.Canary{Records: n.Records, Within: n.tempo.Look}
	h := &head{node: n, canary: canary, roster: team.NewRoster(n.id.Size, n.cfg.Team, !framework.TraitsOf(n.cfg.Framework).Unranked)}
	h.roster.Exclude(n.cfg.Earlier.Unfit)
	h.deaths = &deaths{node: n, roster: h.roster}
	h.assembly = &assembly{node: n, roster: h.roster, deaths: h.deaths, canary: canary, began: time.Now()}
	h.deaths.muster = h.assembly.muster
	h.chronicle = &cards.Chronicle{Size: n.id.Size, Silent: n.tempo.Silent, Trail: n.Trail, Log: n.Log}
	h.cards.Witness = h.chronicle.Keep
	return h
}

// lagging returns a context for starting a process, which ends startLag later than ctx, and a
// function that the caller must call when the start is over. If ctx has already ended, it returns
// ctx itself.
func (n *node) lagging(ctx context.Context) (context.Context, func()) {
	select {
	case <-ctx.Done():
		return ctx, func() {}
	default:
	}
	late, end := context.WithCancelCause(context.WithoutCancel(ctx))
	n.Background(func(context.Context) {
		select {
		case <-ctx.Done():
			pause.For(late, startLag)
			end(context.Cause(ctx))
		case <-late.Done():
		}
	})
	return late, func() { end(nil) }
}

// startLag is how long the start of a driver, or of a command, may continue after the run's context
// has ended. Abandoning a start kills the process at once, although it may already run and must
// have its grace period.
const startLag = time.Second

// opened returns how long the gate has been open, or 0 before.
func (h *head) opened() time.Duration {
	if h.gate == 0 {
		return 0
	}
	return time.Since(h.assembly.began) - h.gate
}

// lookPause is the interval between two checks of the known states of the peers. It does not
// involve the file system.
const lookPause = 5 * time.Millisecond

// errDeadline is the cause of a context whose timeout has expired.
var errDeadline = health.ErrDeadline
