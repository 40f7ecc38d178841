package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/readiness"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// fitness runs the checks that decide whether this node is suitable for the job.
type fitness struct {
	*node
	looked chan check.Report // receives the report once; nil before the checks start
	report check.Report      // the report, once this node has passed; used only by the sequence
}

// lookEarly starts the checks while the node still joins, unless a setup command must run first.
func (f *fitness) lookEarly() {
	if f.cfg.Setup == "" {
		f.lookAtNode()
	}
}

// lookAtNode starts the checks, if any, in the background.
func (f *fitness) lookAtNode() {
	if f.cfg.Checks == nil {
		return
	}
	f.looked = make(chan check.Report, 1)
	f.Background(func(context.Context) {
		tell := readiness.TellWaits(f.Trail, f.Log)
		f.looked <- f.cfg.Checks.Await(f.Life, func(report check.Report) {
			f.shown.Checks(report)
			tell(report)
		})
	})
}

// prepare runs the node's setup command, waits for its checks, and publishes that the node has
// passed them. It does nothing if neither a setup command nor checks are configured.
func (f *fitness) prepare(ctx context.Context) error {
	if !f.cfg.Checked() {
		return nil
	}
	return f.Phase("check", func() error {
		if f.cfg.Setup != "" {
			if err := f.children.Setup(ctx, f.cfg.Setup, f.childEnv(f.cfg.Environ, f.launchSeat()), f.cfg.Times.Setup); err != nil {
				return err
			}
			f.lookAtNode()
		}
		report, err := f.checkedReport(ctx)
		if err != nil {
			return err
		}
		if err := f.cards.Watch(ctx); err != nil {
			return err
		}
		return f.tellFit(report)
	})
}

// checkedReport waits for the report of the checks, and adds the findings about the shared file
// system. Its error is the failure of this node if a finding fails.
func (f *fitness) checkedReport(ctx context.Context) (report check.Report, err error) {
	if f.cfg.Checks == nil {
		return check.Report{}, nil
	}
	// Wait for the checks.
	select {
	case report = <-f.looked:
	case <-ctx.Done():
		return report, context.Cause(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return report, cause
	}
	// Complete the report.
	report.Rank, report.Host = f.id.Rank, f.id.Host
	report.Findings = append(report.Findings, f.cfg.Checks.Judge(f.shareFindings(ctx))...)
	report.Verdict = check.Worst(report.Findings)
	f.shown.Checks(report)
	f.cards.Checked(f.Dir.Name(), report.Findings)
	readiness.Note(f.Trail, report)
	if report.Verdict == check.Fail {
		return report, readiness.Unfit(report, f.name(f.id.Rank))
	}
	// Warnings are only logged here, because the head reports those of all nodes to the user.
	if warned := check.Summary(report.Findings, check.Warn, check.Unknown); warned != "" {
		f.Log.Info("the checks have found something", zap.String("findings", warned))
	}
	return report, nil
}

// shareFindings returns the findings about the shared file system. Its clock was compared with this
// node's when the node joined. Only the head checks, for all nodes, the free space and whether
// other users could replace the run directory.
func (f *fitness) shareFindings(ctx context.Context) []check.Finding {
	share := check.Share{Path: f.Dir.Path()}
	if offset, known := f.Dir.Offset(); known {
		share.Offset = &offset
	}
	if f.id.Rank == 0 {
		ctx, cancel := context.WithTimeoutCause(ctx, run.SickShare, errDeadline)
		defer cancel()
		space, err := f.Dir.Space(ctx)
		share.Space, share.SpaceErr, share.Exposure = &space, err, f.Dir.Exposure(ctx)
	}
	return check.JudgeShare(share)
}

// tellFit publishes that this node has passed, with the report. The name of the record contains the
// kind of the node, a hash of its attributes and warnings, so that a listing shows which nodes are
// alike.
func (f *fitness) tellFit(report check.Report) error {
	if f.cfg.Checks == nil {
		return f.Tell(signal.Checked)
	}
	f.report = report
	data, err := json.Marshal(report)
	if err != nil {
		return health.Failed(health.Internal, "cannot encode what the checks of %s say: %v", f.name(f.id.Rank), err)
	}
	name := signal.CheckedName(f.id.Rank, f.id.Size, report.Kind())
	err = f.Publish(signal.Nodes, name, &signal.CheckedRecord{Report: data}, false)
	if err != nil && !errors.Is(err, run.ErrGoesOn) && f.Life.Err() == nil {
		// The name is sufficient, and a full file system may still accept an empty file.
		f.Log.Warn("cannot tell what the checks say, only that they have passed", zap.Error(err))
		err = f.Mark(signal.Nodes, name)
	}
	return err
}

// compareNodes compares the nodes of the team when all have passed their checks. Its error is a
// difference because of which the driver must not start. If spares can replace the nodes that
// differ, it records the difference as their failure instead.
func (h *head) compareNodes(ctx context.Context, l signal.Listing) error {
	if h.cfg.Checks == nil {
		return nil
	}
	// Consider the members of the team only.
	kinds := l.Kinds()
	for kind, ranks := range kinds {
		if kinds[kind] = h.roster.Among(ranks); len(kinds[kind]) == 0 {
			delete(kinds, kind)
		}
	}
	c := readiness.Comparison{
		Own: h.fitness.report, Policy: h.cfg.Checks.Judge, HostsOf: h.hostsOf, Read: h.readChecked, Trail: h.Trail, Log: h.Log,
	}
	differ, gpus, err := c.Compare(ctx, kinds)
	h.stage.gpus.Store(gpus)
	switch {
	case err != nil:
		return err
	case differ == nil:
		return nil
	case !h.roster.Spares() || len(differ.Lost) == 0:
		return differ
	}
	// Spares may take the places of the nodes that differ.
	differ.Header, differ.Phase = h.header(), "check"
	h.deaths.observe(differ.FailedRecord, time.Now())
	return nil
}

// readChecked reads the report of another node's checks. kind is part of the record's name.
func (h *head) readChecked(ctx context.Context, rank int, kind int64) (report check.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.CheckedRecord
	err = h.Dir.Read(ctx, signal.Nodes, signal.CheckedName(rank, h.id.Size, kind), &record)
	if err == nil && len(record.Report) > 0 {
		err = json.Unmarshal(record.Report, &report)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return report, nil
	case cause != nil && !errors.Is(cause, errDeadline):
		return report, cause
	default:
		return report, health.Failed(health.Share, "cannot read what the checks of %s say: %v", h.name(rank), err)
	}
}
