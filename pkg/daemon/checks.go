package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Checks are the checks of this node.
type Checks interface {
	// Await looks at the node until there is nothing to wait for any more, or
	// ctx ends. What it waits for, it tells progress.
	Await(ctx context.Context, progress func(check.Report)) check.Report
	// Judge returns what findings of others' mean by the policy in force.
	Judge(findings []check.Finding) []check.Finding
	// Longest is how long Await may take.
	Longest() time.Duration
}

// checked tells whether nodes say that they are fit.
func (c *Config) checked() bool { return c.Setup != "" || c.Checks != nil }

// checkTime is how long a node may take until it has said so.
func (c *Config) checkTime() time.Duration {
	within := time.Duration(0)
	if c.Setup != "" {
		within += c.Times.Setup
	}
	if c.Checks != nil {
		within += c.Checks.Longest()
	}
	return within
}

// lookEarly has the node looked at while it joins, where nothing needs to be set
// up before.
func (n *node) lookEarly() {
	if n.cfg.Setup == "" {
		n.lookAtNode()
	}
}

// lookAtNode begins the checks.
func (n *node) lookAtNode() {
	if n.cfg.Checks == nil {
		return
	}
	n.checks = make(chan check.Report, 1)
	n.background(func(context.Context) {
		var told string
		n.checks <- n.cfg.Checks.Await(n.life, func(report check.Report) {
			n.shown.Checks(report)
			if waits := check.Summary(report.Findings, check.Wait); waits != told {
				level := zapcore.DebugLevel // a number in it changes each time
				if told == "" {
					level = zapcore.InfoLevel
				}
				told = waits
				n.log.Log(level, "waiting for what is not ready yet", zap.String("checks", waits), zap.Duration("for", report.Took.Round(time.Second/10)))
				n.trail.Event(trail.Waits, trail.Fields{Checks: waits})
			}
		})
	})
}

// prepare runs the node's setup command and its checks, and tells that the node
// is fit, where any is asked for.
func (n *node) prepare(ctx context.Context) error {
	if !n.cfg.checked() {
		return nil
	}
	return n.phase("check", func() error {
		if n.cfg.Setup != "" {
			if err := n.children.Setup(ctx, n.cfg.Setup, n.childEnv(n.cfg.Environ, n.launchSeat()), n.cfg.Times.Setup); err != nil {
				return err
			}
			n.lookAtNode()
		}
		report, err := n.checkedReport(ctx)
		if err != nil {
			return err
		}
		if n.cfg.GPUs != nil {
			// Where nobody could look there is nothing to keep a directory for, which
			// no guard removes yet.
			if topology := n.cfg.GPUs.Topology(); topology.GPUs != nil {
				n.learn(topology)
			}
		}
		if err := n.watchGPUs(ctx); err != nil {
			return err
		}
		return n.tellFit(report)
	})
}

// checkedReport waits for what the checks say; its error is what does not pass.
func (n *node) checkedReport(ctx context.Context) (report check.Report, err error) {
	if n.cfg.Checks == nil {
		return check.Report{}, nil
	}
	select {
	case report = <-n.checks:
	case <-ctx.Done():
		return report, context.Cause(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return report, cause
	}
	report.Rank, report.Host = n.id.Rank, n.id.Host
	report.Findings = append(report.Findings, n.cfg.Checks.Judge(n.shareFindings(ctx))...)
	report.Verdict = check.Worst(report.Findings)
	n.shown.Checks(report)
	n.noteChecks(report)
	if report.Verdict == check.Fail {
		return report, n.unfit(report)
	}
	if warned := check.Summary(report.Findings, check.Warn, check.Unknown); warned != "" {
		n.log.Info("the checks have found something", zap.String("findings", warned)) // the head tells people
	}
	return report, nil
}

// noteChecks leaves a trace of each check that has something to tell. Those that
// pass are counted: what they saw is in the record.
func (n *node) noteChecks(report check.Report) {
	passed := 0
	for _, f := range report.Findings {
		if f.Verdict == check.Pass || f.Verdict == check.Skip {
			passed++
			continue
		}
		n.trail.Event(trail.Check, trail.Fields{Check: f.ID, Verdict: string(f.Verdict), What: f.Observed})
	}
	n.trail.Event(trail.Checked, trail.Fields{Verdict: string(report.Verdict), Passed: &passed, TookNS: report.Took.Nanoseconds()})
}

// shareFindings are about the log directory's share, which has told of its clock
// when this node has joined. What room it has the head asks for all.
func (n *node) shareFindings(ctx context.Context) []check.Finding {
	share := check.Share{Path: n.dir.Path()}
	if offset, known := n.dir.Offset(); known {
		share.Offset = &offset
	}
	if n.id.Rank == 0 {
		ctx, cancel := context.WithTimeoutCause(ctx, sickShare, errDeadline)
		defer cancel()
		space, err := n.dir.Space(ctx)
		share.SpaceErr = err
		if err == nil {
			share.Space = &space
		}
	}
	return check.JudgeShare(share)
}

// tellFit publishes what the checks say, under a name that says what kind of
// node this is.
func (n *node) tellFit(report check.Report) error {
	if n.cfg.Checks == nil {
		return n.tell(signal.Checked)
	}
	n.fitness = report
	data, err := json.Marshal(report)
	if err != nil {
		return health.Failed(health.Internal, "cannot encode what the checks of %s say: %v", n.name(n.id.Rank), err)
	}
	name := signal.CheckedName(n.id.Rank, n.id.Size, report.Kind())
	err = n.publish(signal.Nodes, name, &signal.CheckedRecord{Report: data}, false)
	if err != nil && !errors.Is(err, errGoesOn) && n.life.Err() == nil {
		// The name says what matters, and a share that is full may still take it.
		n.log.Warn("cannot tell what the checks say, only that they have passed", zap.Error(err))
		err = n.mark(signal.Nodes, name)
	}
	return err
}

// unfit is the failure that a node does not pass its checks. Where none of them
// speaks of the node itself, another one would fail, too.
func (n *node) unfit(report check.Report) *health.Failure {
	kind, fails := health.CheckUser, check.Of(report.Findings, check.Fail)
	for _, f := range fails {
		if f.Class != check.User {
			kind = health.Check
		}
	}
	f := health.Failed(kind, "%s is not fit for the job: %s", n.name(n.id.Rank), check.Sentence(fails))
	if data, err := json.Marshal(report); err == nil {
		f.Report = data
	}
	return f
}
