package world

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// HungWorld is a world, or an instance of a role, in which no rank has shown a sign of activity for too
// long.
type HungWorld struct {
	Dir      string           // run directory
	Instance string           // name of the instance, such as trainer.0; empty for the world of the run
	Timeout  time.Duration    // duration without a sign of any rank
	HasSteps bool             // ranks of it have reported steps
	Progress *record.Progress // nil if no steps are known
	Suspect  lifecycle.Suspect
	LogName  string // file to which Log writes
	Log      *zap.Logger
}

const (
	// stacksTimeout limits the time for reading stacks on all nodes, and for asking NCCL afterwards.
	stacksTimeout = 70 * time.Second
	// maxFindings is the maximum number of NCCL's findings in the failure. The log has all.
	maxFindings = 3
)

// askNodes asks all nodes what their ranks are doing. A debugger stops a process for a moment, so the
// processes of other instances are left alone: they could be taken for idle.
func (h HungWorld) askNodes(ctx context.Context) (diagnosis exec.Diagnosis, err error) {
	text, err := stackdump.RunCommand(ctx, h.Dir, "--stacks", "--json", "--instance="+h.Instance)
	if err == nil {
		err = json.NewDecoder(strings.NewReader(text)).Decode(&diagnosis)
	}
	return diagnosis, err
}

// DiagnoseHang logs the stacks of all ranks, and returns the failure of the world.
func DiagnoseHang(ctx context.Context, h HungWorld) *health.Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, stacksTimeout, health.ErrDeadline)
	defer cancel()
	diagnosis, err := h.askNodes(ctx)
	who, flag := "no rank", "--hang-timeout"
	if h.Instance != "" {
		who, flag = "no process of "+h.Instance, "hang-timeout"
	}
	if err != nil {
		h.Log.Warn("cannot determine what the ranks are doing", zap.Error(err))
	} else {
		h.Log.Warn("what the ranks are doing:\n" + diagnosis.FormatText() + diagnosis.FormatStacks())
	}
	found, sign := "", "used CPU time or printed anything"
	if h.HasSteps {
		found, sign = h.describeSteps(diagnosis), "reported a new step"
	}
	if findings := diagnosis.FormatFindings(); len(findings) > 0 {
		found += "; NCCL: " + textutil.JoinLimited(findings, maxFindings, "; ")
	}
	f := health.NewFailure(health.DeadlinePassed,
		"%s has %s for %s (%s)%s; %s shows what each rank was doing%s",
		who, sign, textutil.FlagDuration(h.Timeout), flag, h.Suspect.Clause, h.LogName, found)
	f.ErrorLine, f.Log = h.Suspect.ErrorLine, h.Suspect.Log
	return f
}

// describeSteps describes the newest step of the job, which ranks are behind, and where they are. If
// that does not follow from the steps, it describes where all ranks are.
func (h HungWorld) describeSteps(diagnosis exec.Diagnosis) (text string) {
	if h.Progress != nil {
		text = "; the newest step is " + progress.FormatStep(h.Progress.Step)
	}
	steps, areBehind := diagnosis.DescribeSteps()
	if steps != "" {
		text += "; " + steps
	}
	if ranks := diagnosis.DescribeRanks(); ranks != "" && !areBehind {
		text += "; " + ranks
	}
	return text
}
