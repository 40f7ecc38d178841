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

// head is rank 0: a node that leads the others besides.
type head struct {
	*node
	nodes    *signal.Watch   // over Nodes
	lines    *lifeline.Lines // nil where there are no lifelines
	roster   *team.Roster
	deaths   *deaths
	assembly *assembly

	requests  *request.Head
	chronicle *cards.Chronicle
	canary    *run.Canary
	stage     stage

	gate        time.Duration // from the start to the open gate; 0 before
	endpoint    framework.Endpoint
	driver      process.Handle // nil before it runs
	world       *world.Head    // nil where the driver is one process
	slowSandbox sync.WaitGroup // the head's own sandbox, as long as it starts
}

// stage is how far the head's own part of the bring-up is.
type stage struct {
	serving  atomic.Bool // the head's service is up
	counting atomic.Bool // the framework is asked for its nodes
	gpus     atomic.Bool // a node has told of GPUs
}

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

// lagging returns a context for a start, which ends by startLag after ctx does, and
// a function to call when it is over. One that has ended already lags no more.
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

// startLag is how long the start of a driver, or of a command, may go on after its
// end has come: a start that is given up kills what it starts, which may run by
// then and is owed its grace.
const startLag = time.Second

// opened is how long the gate has been open; 0 before.
func (h *head) opened() time.Duration {
	if h.gate == 0 {
		return 0
	}
	return time.Since(h.assembly.began) - h.gate
}

// lookPause lies between two looks at what is known of the others.
const lookPause = 5 * time.Millisecond

// errDeadline is the cause of a context whose time is over.
var errDeadline = health.ErrDeadline
