package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
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
			n.showChecks(report)
			if waits := summary(report.Findings, check.Wait); waits != told {
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
			if err := n.setup(ctx); err != nil {
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
	n.showChecks(report)
	n.noteChecks(report)
	if report.Verdict == check.Fail {
		return report, n.unfit(report)
	}
	if warned := summary(report.Findings, check.Warn, check.Unknown); warned != "" {
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
		return failed(health.Internal, "cannot encode what the checks of %s say: %v", n.name(n.id.Rank), err)
	}
	name := signal.CheckedName(n.id.Rank, n.id.Size, kindOf(report))
	err = n.publish(signal.Nodes, name, &signal.CheckedRecord{Report: data}, false)
	if err != nil && !errors.Is(err, errGoesOn) && n.life.Err() == nil {
		// The name says what matters, and a share that is full may still take it.
		n.log.Warn("cannot tell what the checks say, only that they have passed", zap.Error(err))
		err = n.mark(signal.Nodes, name)
	}
	if err != nil {
		return err
	}
	n.reached(signal.Checked)
	return nil
}

// warnings is a trait: nodes about which there is the same to be told are of the
// same kind, so that the head can tell it for all of them.
const warnings = "warnings"

// kindOf is the number that nodes of one kind have in common.
func kindOf(report check.Report) int64 {
	return check.Fingerprint(append(slices.Clone(report.Traits), check.Trait{ID: warnings, Value: strings.Join(warned(report), ",")}))
}

// warned are the checks of a node that have something to tell, in order.
func warned(report check.Report) []string {
	var ids []string
	for _, f := range report.Findings {
		if f.Verdict == check.Warn || f.Verdict == check.Unknown {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// unfit is the failure that a node does not pass its checks. Where none of them
// speaks of the node itself, another one would fail, too.
func (n *node) unfit(report check.Report) *failure {
	kind, fails := health.CheckUser, findings(report.Findings, check.Fail)
	for _, f := range fails {
		if f.Class != check.User {
			kind = health.Check
		}
	}
	f := failed(kind, "%s is not fit for the job: %s", n.name(n.id.Rank), sentence(fails))
	if data, err := json.Marshal(report); err == nil {
		f.Report = data
	}
	return f
}

// findings are those of these verdicts.
func findings(all []check.Finding, verdicts ...check.Verdict) (some []check.Finding) {
	for _, f := range all {
		if slices.Contains(verdicts, f.Verdict) {
			some = append(some, f)
		}
	}
	return some
}

// inSentence is how many things that were found a sentence bears, and
// devicesNamed how many devices each.
const (
	inSentence   = 3
	devicesNamed = 2
)

// sentence tells what was found, the first few of it. What is the same of several
// devices is one thing.
func sentence(found []check.Finding) string {
	var parts []string
	for len(found) > 0 && len(parts) < inSentence {
		f := found[0]
		same := func(other check.Finding) bool {
			return other.ID == f.ID && other.Observed == f.Observed && other.Expected == f.Expected && (f.Device == nil) == (other.Device == nil)
		}
		var devices []string
		for _, other := range found {
			if same(other) && f.Device != nil {
				devices = append(devices, other.Device.String())
			}
		}
		found = slices.DeleteFunc(slices.Clone(found), same)
		part := f.ID + ": "
		if len(devices) > 0 {
			part += prose.List(devices, devicesNamed, ", ") + ": "
		}
		part += f.Observed
		if f.Expected != "" {
			part += " (expected: " + f.Expected + ")"
		}
		parts = append(parts, part)
	}
	if len(found) > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", len(found)))
	}
	return prose.Said(strings.Join(parts, "; "))
}

// summary is a sentence of the findings of these verdicts; empty where there
// are none.
func summary(all []check.Finding, verdicts ...check.Verdict) string {
	return sentence(findings(all, verdicts...))
}

// groups are the kinds of nodes that the head knows, each with what one of them
// has said.
type group struct {
	ranks  []int
	report check.Report
}

// kindsRead bounds how many kinds are read, and readAtOnce how many side by
// side. A job whose nodes are all of different kinds needs no more to be told so.
const (
	kindsRead  = 512
	readAtOnce = 8
)

// compare sets side by side what the nodes of the job are, once all of them
// have said so, and tells of the odd ones. Its error is a difference that no
// driver is started on.
func (h *head) compare(ctx context.Context, l signal.Listing) error {
	if h.cfg.Checks == nil {
		return nil
	}
	groups, err := h.groups(ctx, l)
	if err != nil {
		return err
	}
	h.tellWarnings(groups)
	h.gpus.Store(slices.ContainsFunc(groups, func(g group) bool { return hasGPUs(g.report) }))
	if len(groups) < 2 {
		return nil
	}
	told := make([]check.Group, len(groups))
	for i, g := range groups {
		told[i] = check.Group{Ranks: g.ranks, Traits: g.report.Traits}
	}
	odd := make(map[string][]int)
	var found []check.Finding
	for _, d := range check.Compare(told, h.hostsOf) {
		odd[d.ID] = d.Odd
		found = append(found, d.Finding)
	}
	found = h.cfg.Checks.Judge(found)
	for _, f := range findings(found, check.Warn, check.Unknown) {
		h.trail.Event(trail.Differs, trail.Fields{Check: f.ID, What: f.Observed})
		h.log.Warn("the nodes differ: "+sentence([]check.Finding{f}), zap.String("next", f.Hint))
	}
	return h.differ(findings(found, check.Fail), odd)
}

// hasGPUs tells whether a node has told of any.
func hasGPUs(report check.Report) bool {
	return slices.ContainsFunc(report.Traits, func(t check.Trait) bool { return t.ID == "x.gpu_count" && t.Value != "0" && t.Value != "" })
}

// differ is the failure that nodes differ which must not; odd are the ranks, by
// the check, that differ from the others.
func (h *head) differ(fails []check.Finding, odd map[string][]int) error {
	if len(fails) == 0 {
		return nil
	}
	f := failed(health.NodesDiffer, "the nodes of the job differ: %s", sentence(fails))
	for _, finding := range fails {
		f.Lost = append(f.Lost, odd[finding.ID]...)
	}
	slices.Sort(f.Lost)
	f.Lost = slices.Compact(f.Lost)
	if data, err := json.Marshal(check.Report{
		Version: check.ReportVersion, At: time.Now(), Verdict: check.Fail, Findings: fails,
	}); err == nil {
		f.Report = data
	}
	if h.roster.spares && len(f.Lost) > 0 { // others may take their places
		f.Header, f.Phase = h.header(), "check"
		h.observe(f.FailedRecord, time.Now())
		return nil
	}
	return f
}

// groups reads one record of each kind of node in the team.
func (h *head) groups(ctx context.Context, l signal.Listing) ([]group, error) {
	kinds := l.Kinds()
	var groups []group
	for kind, ranks := range kinds {
		if ranks = h.roster.among(ranks); len(ranks) > 0 {
			g := group{ranks: ranks}
			if kind == kindOf(h.fitness) {
				g.report = h.fitness
			}
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.ranks[0], b.ranks[0]) })
	if len(groups) > kindsRead {
		h.log.Warn("the nodes are of too many kinds to compare them all", zap.Int("kinds", len(groups)), zap.Int("compared", kindsRead))
		groups = groups[:kindsRead]
	}
	var reads errgroup.Group
	reads.SetLimit(readAtOnce)
	for i := range groups {
		if groups[i].report.Version == 0 {
			reads.Go(func() (err error) {
				groups[i].report, err = h.readChecked(ctx, l, groups[i].ranks[0])
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil { // those nodes are fit by their own word, and not compared
					h.log.Warn("cannot compare nodes with the others", zap.String("nodes", h.hostsOf(groups[i].ranks)), zap.Error(err))
				}
				return nil
			})
		}
	}
	return groups, reads.Wait()
}

// readChecked reads what the checks of a rank have said.
func (h *head) readChecked(ctx context.Context, l signal.Listing, rank int) (report check.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.CheckedRecord
	for kind, ranks := range l.Kinds() {
		if slices.Contains(ranks, rank) {
			err = h.dir.Read(ctx, signal.Nodes, signal.CheckedName(rank, h.id.Size, kind), &record)
		}
	}
	if err == nil && len(record.Report) > 0 {
		err = json.Unmarshal(record.Report, &report)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return report, nil
	case cause != nil && !errors.Is(cause, errDeadline):
		return report, cause
	default:
		return report, failed(health.Share, "cannot read what the checks of %s say: %v", h.name(rank), err)
	}
}

// tellWarnings tells what the checks have found that stops nobody: each check
// once, with the nodes that it is about.
func (h *head) tellWarnings(groups []group) {
	ranks, example := make(map[string][]int), make(map[string]check.Finding)
	for _, g := range groups {
		for _, id := range warned(g.report) {
			ranks[id] = append(ranks[id], g.ranks...)
			if _, known := example[id]; !known {
				at := slices.IndexFunc(g.report.Findings, func(f check.Finding) bool {
					return f.ID == id && (f.Verdict == check.Warn || f.Verdict == check.Unknown)
				})
				example[id] = g.report.Findings[at]
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ranks)) {
		slices.Sort(ranks[id])
		h.log.Warn("a check warns: "+sentence([]check.Finding{example[id]}),
			zap.String("on", h.hostsOf(ranks[id])), zap.String("next", example[id].Hint))
	}
}
