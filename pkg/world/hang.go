package world

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/why"
)

// Hang is a world of which no rank does anything.
type Hang struct {
	Dir        string        // the run directory
	Timeout    time.Duration // for how long no rank did anything
	OutputOnly bool          // only output counted
	LogName    string        // the file that Log writes to
	Log        *zap.Logger
}

// stacksTimeout bounds the reading of stacks on all nodes.
const stacksTimeout = time.Minute

// Failure logs what each rank is doing, and returns the failure of the world.
func (h Hang) Failure(ctx context.Context) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, stacksTimeout, health.ErrDeadline)
	defer cancel()
	stacks, err := why.Told(ctx, h.Dir, "--stacks")
	if err != nil {
		h.Log.Warn("cannot tell what the ranks are doing", zap.Error(err))
	} else {
		h.Log.Warn("what the ranks are doing:\n" + stacks)
	}
	sign := "used the processor or printed anything"
	if h.OutputOnly {
		sign = "printed anything"
	}
	return health.Failed(health.Deadline, "no rank has %s for %s (--hang-timeout); %s has what each of them was doing",
		sign, h.Timeout, h.LogName)
}
