package world

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/exec/query"
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

// askNodes asks all nodes what their ranks are doing.
func (h HungWorld) askNodes(ctx context.Context) (diagnosis query.Diagnosis, err error) {
	text, err := stackdump.RunCommand(ctx, h.Dir, "--stacks", "--json")
	if err == nil {
		err = json.NewDecoder(strings.NewReader(text)).Decode(&diagnosis)
	}
	return diagnosis, err
}

// DiagnoseFailure logs the stacks of all ranks, and returns the failure of the world.
func (h HungWorld) DiagnoseFailure(ctx context.Context) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, stacksTimeout, health.ErrDeadline)
	defer cancel()
	diagnosis, err := h.askNodes(ctx)
	if err != nil {
		h.Log.Warn("cannot determine what the ranks are doing", zap.Error(err))
	} else {
		h.Log.Warn("what the ranks are doing:\n" + diagnosis.FormatText() + diagnosis.FormatStacks())
	}
	nccl := ""
	if findings := diagnosis.FormatFindings(); len(findings) > 0 {
		nccl = "; NCCL: " + textutil.JoinLimited(findings, maxFindings, "; ")
	}
	sign := "used CPU time or printed anything"
	if h.OutputOnly {
		sign = "printed anything"
	}
	return health.NewFailure(health.DeadlinePassed, "no rank has %s for %s (--hang-timeout); %s shows what each rank was doing%s",
		sign, h.Timeout, h.LogName, nccl)
}
