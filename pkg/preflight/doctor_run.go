package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ReadinessChecks are the node's own checks. [NodeChecks] implements it.
type ReadinessChecks interface {
	AwaitReady(ctx context.Context, progress func(check.Report)) check.Report
	// MaxDuration returns the maximum duration of [ReadinessChecks.AwaitReady].
	MaxDuration() time.Duration
}

// ExaminedLaunch describes the launch that is examined.
type ExaminedLaunch struct {
	Identity launcher.Identity
	// AloneReason and Mistake are the reason why only this node is examined: no launcher has started
	// several daemons, or it has started them wrongly. Identity then describes a job of one node.
	AloneReason, Mistake *launcher.LaunchError
	LogDir               string
	Framework            framework.Framework
	Policy               check.Policy
}

// DoctorConfig holds the launch to examine and everything that an examination needs.
type DoctorConfig struct {
	ExaminedLaunch
	Hostname    string // host name used by the kernel
	TempDir     string
	Address     func() (string, error) // returns this node's address for connections from peers
	Checks      ReadinessChecks
	Environ     []string
	Driver      []string      // command line of the job's driver; nil: it is not examined
	PMIx        string        // value of --pmix
	Program     string        // version of this program
	JoinTimeout time.Duration // time limit for all nodes to join

	Access   signal.Access    // zero: the file system itself
	Network  peerlink.Network // nil: TCP
	Resolver Resolver         // nil: the system's resolver
}

// examiner performs one node's part of an examination.
type examiner struct {
	DoctorConfig
	began time.Time
}

// Names that only an examination uses, in addition to those of a job.
const (
	pingName  = "ping"  // in Control: request for an immediate answer
	pongState = "pong"  // in Nodes: the answer
	factState = "facts" // in Nodes: a factsRecord
)

// factsRecord is the record in which a node publishes its facts.
type factsRecord struct {
	record.Header
	Facts DoctorFacts `json:"facts"`
}

const (
	// pingTimeout is how long the head waits for answers, and how long a node that has joined waits
	// for the request.
	pingTimeout = 30 * time.Second
	// headWaitMargin is how much longer a node waits for the head than the head waits for the nodes,
	// so that no node leaves before the report exists.
	headWaitMargin = 10 * time.Second
	// endTimeout is how long the head waits for all nodes to see the result.
	endTimeout = 15 * time.Second
)

var (
	errJoinTimeout = errors.New("the join timeout expired")
	errPingTimeout = errors.New("timed out waiting for a response")
	errEndTimeout  = errors.New("timed out waiting for the end")
)

// RunDoctor examines a launch together with the other nodes. On the head it calls show with the
// report. On every node it returns the exit code of the report.
func RunDoctor(
	ctx context.Context, cfg DoctorConfig, show func(DoctorReport) error,
) (code int, err error) {
	d := &examiner{DoctorConfig: cfg, began: time.Now()}
	d.Network = cmp.Or[peerlink.Network](d.Network, peerlink.TCP{})
	d.Resolver = cmp.Or[Resolver](d.Resolver, net.DefaultResolver)
	if d.Identity.NodeIndex == 0 {
		return d.runHead(ctx, show)
	}
	return d.runWorker(ctx)
}

// runLocation returns the location of the examination's run directory.
func (d *examiner) runLocation() signal.Location {
	id := d.Identity
	return signal.Location{
		LogDir: d.LogDir, Run: id.RunName() + launcher.DoctorSuffix, Key: id.LaunchKey,
		NodeIndex: id.NodeIndex, Size: id.Size, Host: id.Host, Access: d.Access,
	}
}

// factsTimeout returns the maximum time for gathering the facts.
func (d *examiner) factsTimeout() time.Duration {
	return d.Checks.MaxDuration() + versionTimeout + 2*collectTimeout
}

// runHead performs the head's part and returns the exit code.
func (d *examiner) runHead(ctx context.Context, show func(DoctorReport) error) (int, error) {
	c := launchState{ExaminedLaunch: d.ExaminedLaunch}
	m, err := d.openRendezvous(ctx)
	// Without a run directory, only this node can be examined.
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		c.ShareErr, c.Facts = err, []DoctorFacts{d.gatherFacts(ctx, nil, nil)}
		report := buildDoctorReport(&c, time.Since(d.began))
		return report.Code, show(report)
	}
	defer m.close()
	err = m.collectFacts(ctx, &c)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		// The nodes have no faults of their own: the shared file system has failed.
		return 0, m.publishEnd(ctx, health.OutcomeOfKind(health.ShareUnusable).Code, err)
	}
	report := buildDoctorReport(&c, time.Since(d.began))
	return report.Code, m.publishEnd(ctx, report.Code, show(report))
}

// directoryExists reports whether a directory exists. It lists the parent directory instead of
// calling stat. If the parent cannot be listed, it returns true.
func directoryExists(dir string) bool {
	entries, err := os.ReadDir(filepath.Dir(dir))
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() == filepath.Base(dir)
	})
}

// joinAndReport performs the part that every node has, including the head: it joins, answers the
// head's request and publishes its facts.
func (d *examiner) joinAndReport(
	ctx context.Context, dir *signal.Dir, job record.Job, kind files.FileSystem,
) error {
	joined := &record.Joined{JobNonce: job.Nonce, PID: os.Getpid(), ProgramVersion: d.Program}
	name := dir.NodeName(d.Identity.NodeIndex, record.StateJoined)
	if err := dir.PublishRecord(ctx, signal.NodesDir, name, joined, false); err != nil {
		return err
	}
	var rec factsRecord
	var gathering sync.WaitGroup
	gathering.Go(func() { rec.Facts = d.gatherFacts(ctx, dir, &job) })
	err := d.answerPing(ctx, dir)
	gathering.Wait()
	if err = cmp.Or(err, context.Cause(ctx)); err != nil {
		return err
	}
	share := &rec.Facts.Share
	share.FileSystem = kind.Name
	if offset, known := dir.ClockOffset(); known {
		share.Offset = &offset
	}
	name = dir.NodeName(d.Identity.NodeIndex, factState)
	return dir.PublishRecord(ctx, signal.NodesDir, name, &rec, false)
}

// answerPing waits for the head's request and answers it. It returns nil if no request has come in
// time.
func (d *examiner) answerPing(ctx context.Context, dir *signal.Dir) error {
	asked, cancel := context.WithTimeoutCause(ctx, d.JoinTimeout+pingTimeout, errPingTimeout)
	defer cancel()
	over := false // the head has ended the examination
	err := dir.AwaitListing(asked, signal.ControlDir, func(l signal.Listing) bool {
		over = l.HasName(signal.NameOrderlyEnd)
		return over || l.HasName(pingName)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil, over:
		return nil
	}
	return dir.WriteMark(ctx, signal.NodesDir, dir.NodeName(d.Identity.NodeIndex, pongState))
}

// runWorker performs the part of all other nodes and returns the exit code.
func (d *examiner) runWorker(ctx context.Context) (int, error) {
	limit := d.JoinTimeout + min(headWaitMargin, d.JoinTimeout)
	finding, cancel := context.WithTimeoutCause(ctx, limit, errJoinTimeout)
	defer cancel()
	finder := signal.NewFinder(d.runLocation())
	dir, job, err := finder.AwaitRun(finding)
	if errors.Is(err, errJoinTimeout) && ctx.Err() == nil {
		return 0, d.headNotFoundError(ctx, finder)
	}
	if err != nil {
		return 0, err
	}
	if job.Size != d.Identity.Size {
		return 0, &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot take part as node %d of %d (%s): the head examines %d nodes",
				d.Identity.NodeIndex, d.Identity.Size, d.Identity.Host, job.Size),
			Fix: "start all nodes in one launch",
		}
	}
	if err := d.joinAndReport(ctx, dir, job, finder.FileSystem(finding)); err != nil {
		return 0, err
	}
	return d.awaitEnd(ctx, dir)
}

// headNotFoundError returns the error of a node that has not found the head's run directory.
func (d *examiner) headNotFoundError(ctx context.Context, finder *signal.Finder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, collectTimeout, errCollectTimeout)
	defer cancel()
	kind := finder.FileSystem(ctx)
	problem := fmt.Sprintf("the head's run %s did not appear there within %s",
		d.runLocation().Run, time.Since(d.began).Round(time.Second/10))
	if kind.Name != "" {
		problem += " (file system: " + kind.Name + ")"
	}
	return &signal.DirError{
		Path: d.LogDir, Host: d.Identity.Host, Problem: problem,
		Remedy: "check that this is the same file system as on the head, and that the head's task has started",
	}
}

// awaitEnd waits until the head has published the exit code, and returns it. No node leaves
// earlier, because some launchers end all tasks when one of them exits.
func (d *examiner) awaitEnd(ctx context.Context, dir *signal.Dir) (int, error) {
	limit := d.JoinTimeout + 2*pingTimeout + d.factsTimeout()
	waiting, cancel := context.WithTimeoutCause(ctx, limit, errEndTimeout)
	defer cancel()
	err := dir.AwaitListing(waiting, signal.ControlDir, func(l signal.Listing) bool {
		return l.HasName(signal.NameOrderlyEnd)
	})
	if err != nil {
		return 0, fmt.Errorf("cannot get the result on %s: no response from the head: %w",
			d.Identity.Host, err)
	}
	var end record.OrderlyEnd
	if err := dir.ReadRecord(waiting, signal.ControlDir, signal.NameOrderlyEnd, &end); err != nil {
		return 0, err
	}
	return end.Code, dir.WriteMark(waiting, signal.NodesDir, dir.NodeName(d.Identity.NodeIndex, record.StateDone))
}
