package restart

import (
	"context"
	"errors"
	"slices"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// adoptRun finds the run that waits for the daemons of this one's job step, and makes this daemon a
// member of it. Its index is that of this host's node there, and the step's.
func (s *supervisor) adoptRun(ctx context.Context) error {
	id, step := &s.cfg.Identity, s.cfg.Roles.Step
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Join, health.ErrDeadline)
	defer cancel()
	dir, job, err := signal.NewStepFinder(s.cfg.RunLocation(), id.IsRunOfJob, step).AwaitRun(ctx)
	if errors.Is(err, health.ErrDeadline) {
		remedy := "the same --config"
		if s.cfg.IsSandboxDaemon() {
			remedy = "--sandbox-step"
		}
		return health.NewFailure(health.ShareUnusable,
			"cannot find the run of step %s: %s has seen none of job %s in %s for %s: start the "+
				"other step with %s and the same --log-dir",
			step, id.Host, id.Job, s.cfg.LogDir, s.cfg.Times.Join, remedy)
	}
	if err != nil {
		return err
	}
	// Usually both steps have the same nodes in the same order. On one machine all have one host.
	node := id.NodeIndex
	if id.LocalSize <= 1 {
		node, err = dir.AwaitNodeIndex(ctx, id.Host, node)
	}
	if errors.Is(err, health.ErrDeadline) {
		return health.NewFailure(health.Launch,
			"cannot find %s among the nodes of run %s: start step %s on nodes of that run", id.Host, dir.Name(), step)
	}
	if err != nil {
		return err
	}
	member := record.MemberIndex(node, 1+slices.Index(job.Steps, step), job.Size)
	id.AdoptRun(dir.Name(), job.Key, member, job.Size)
	id.Steps = job.Steps
	if s.cfg.Roles.AreGiven() {
		s.cfg.Team = s.cfg.Roles.NodeRange(membership.NodeRange{}, job.Size) // the step may have fewer nodes
	}
	if hosts, err := launcher.ExpandNodeList(job.Hosts, job.Size); err == nil && len(hosts) == job.Size {
		id.Hosts = hosts
	}
	return nil
}
