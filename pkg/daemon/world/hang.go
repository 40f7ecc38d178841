package world

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
)

// HungWorld is a world in which no rank has made progress for too long.
type HungWorld struct {
	Dir        string        // run directory
	Timeout    time.Duration // duration without progress of any rank
	OutputOnly bool          // only output counted as progress
	LogName    string        // file to which Log writes
	Log        *zap.Logger
}

const (
	// stacksTimeout limits the time for reading stacks on all nodes, and for asking NCCL afterwards.
	stacksTimeout = 70 * time.Second
	// maxFindings is the maximum number of NCCL's findings in the failure. The log has all.
	maxFindings = 3
)

// DiagnoseFailure logs the stacks of all ranks, and returns the failure of the world.
func (h HungWorld) DiagnoseFailure(ctx context.Context) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, stacksTimeout, health.ErrDeadline)
	defer cancel()
	stacks, err := stackdump.RunCommand(ctx, h.Dir, "--stacks")
	if err != nil {
		h.Log.Warn("cannot determine what the ranks are doing", zap.Error(err))
	} else {
		h.Log.Warn("what the ranks are doing:\n" + stacks)
	}
	nccl := ""
	if findings := ncclras.FindingsIn(stacks); len(findings) > 0 {
		nccl = "; NCCL: " + textutil.JoinLimited(findings, maxFindings, "; ")
	}
	sign := "used CPU time or printed anything"
	if h.OutputOnly {
		sign = "printed anything"
	}
	return health.NewFailure(health.DeadlinePassed, "no rank has %s for %s (--hang-timeout); %s shows what each rank was doing%s",
		sign, h.Timeout, h.LogName, nccl)
}
