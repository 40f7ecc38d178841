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

// fitness is whether this node is fit for the job.
type fitness struct {
	*node
	looked chan check.Report // what the checks say, once; nil before they begin
	report check.Report      // the same, where this node is fit; owned by the sequence
}

// lookEarly has the node looked at while it joins, where nothing needs to be set
// up before.
func (f *fitness) lookEarly() {
	if f.cfg.Setup == "" {
		f.lookAtNode()
	}
}

// lookAtNode begins the checks.
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

// prepare runs the node's setup command and its checks, and tells that the node
// is fit, where any is asked for.
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

// checkedReport waits for what the checks say; its error is what does not pass.
func (f *fitness) checkedReport(ctx context.Context) (report check.Report, err error) {
	if f.cfg.Checks == nil {
		return check.Report{}, nil
	}
	select {
	case report = <-f.looked:
	case <-ctx.Done():
		return report, context.Cause(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return report, cause
	}
	report.Rank, report.Host = f.id.Rank, f.id.Host
	report.Findings = append(report.Findings, f.cfg.Checks.Judge(f.shareFindings(ctx))...)
	report.Verdict = check.Worst(report.Findings)
	f.shown.Checks(report)
	f.cards.Checked(f.Dir.Name(), report.Findings)
	readiness.Note(f.Trail, report)
	if report.Verdict == check.Fail {
		return report, readiness.Unfit(report, f.name(f.id.Rank))
	}
	if warned := check.Summary(report.Findings, check.Warn, check.Unknown); warned != "" {
		f.Log.Info("the checks have found something", zap.String("findings", warned)) // the head tells people
	}
	return report, nil
}

// shareFindings are about the log directory's share, which has told of its clock
// when this node has joined. What room it has the head asks for all.
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

// tellFit publishes what the checks say, under a name that says what kind of
// node this is.
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
		// The name says what matters, and a share that is full may still take it.
		f.Log.Warn("cannot tell what the checks say, only that they have passed", zap.Error(err))
		err = f.Mark(signal.Nodes, name)
	}
	return err
}

// compareNodes sets side by side what the nodes are, once all have said so. Its error is a difference that no driver is started on.
func (h *head) compareNodes(ctx context.Context, l signal.Listing) error {
	if h.cfg.Checks == nil {
		return nil
	}
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
	differ.Header, differ.Phase = h.header(), "check"
	h.deaths.observe(differ.FailedRecord, time.Now()) // others may take their places
	return nil
}

// readChecked reads what the checks of a rank have said.
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
