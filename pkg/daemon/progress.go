package daemon

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// progressPace is the interval at which the head decides whether to log the progress.
const progressPace = time.Second

// tellProgress logs what the gate still waits for, at growing intervals, until ctx ends.
func (h *head) tellProgress(ctx context.Context) {
	tick := time.NewTicker(progressPace)
	defer tick.Stop()
	var v gate.Vigil
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		lacks := h.lacks(h.nodes.Last())
		if waited, due := v.Due(lacks, time.Now()); due {
			h.Log.Info(gate.Line(lacks, h.roster.Count(), waited, h.cfg.Framework.Name(), h.hostsOf, h.reasons(ctx, lacks)))
		}
	}
}

// lacks returns the conditions of the gate that are not met yet according to listing l.
func (h *head) lacks(l signal.Listing) []gate.Lack {
	asked := gate.Asked{
		Checks: h.cfg.Checked(), Sandboxes: h.cfg.Sandbox.Wanted() && !h.sandboxesMet(l),
		Services: h.cfg.Framework.Serves(), Led: h.stage.serving.Load(), Counting: h.stage.counting.Load(),
	}
	return asked.Lacks(func(state string) []int { return h.roster.Unknown(h.roster.Missing(l, state)) })
}

// sandboxesMet reports whether enough sandboxes are ready for the gate.
func (h *head) sandboxesMet(l signal.Listing) bool {
	return h.cfg.Sandbox.Require.Met(h.roster.Among(signal.Without(l.Ranks(signal.Sandbox), l.Ranks(signal.SandboxFailed))), h.roster.Count())
}

// reasons returns, by phase, the reasons for waiting that the nodes have published. It returns nil
// if the file system is unresponsive.
func (h *head) reasons(ctx context.Context, lacks []gate.Lack) map[string]string {
	if h.Silence() > run.SickShare {
		return nil
	}
	look := gate.Reasons{Dir: h.Dir, Size: h.id.Size, Step: h.cfg.Sandbox.Step, HostsOf: h.hostsOf, Within: run.SickShare}
	return look.Of(ctx, lacks)
}
