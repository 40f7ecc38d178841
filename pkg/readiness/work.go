package readiness

import (
	"context"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// work puts the job's GPUs to work that nobody uses, by what the last look has seen of them, and returns what is wrong and
// what was measured. Where the node is not fit for that, nothing is done.
func (g *GPUs) work(ctx context.Context, fit, long bool) ([]check.Finding, []check.Figure) {
	if !fit {
		return []check.Finding{cuda.Rested(nil, "the node has failed another check")}, nil
	}
	idle, left := fitness.Idle(g.seen(), g.Expect)
	if len(idle) == 0 {
		return left, nil
	}
	var uuids []string
	for _, device := range idle {
		uuids = append(uuids, device.UUID)
	}
	worked, err := g.Worker.Work(ctx, uuids, long)
	if err != nil { // ctx is over, and nobody minds what was found
		return append(left, cuda.Rested(nil, err.Error())), nil
	}
	found, figures := cuda.JudgeWork(worked, idle)
	return append(left, found...), figures
}
