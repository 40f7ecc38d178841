package launch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RunDir is the run directory of the daemons of a job, as the process that starts them sees it.
type RunDir struct {
	Path  string
	Host  string   // this host
	Hosts []string // the nodes'
}

// Exists reports whether the run directory exists, as far as this can be determined within a time.
func (r RunDir) Exists(within time.Duration) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, health.ErrDeadline)
	defer cancel()
	_, _, err := signal.OpenExisting(ctx, r.Path, r.Host)
	return err == nil
}

// runDirPollInterval is the interval at which [RunDir.ReportUnjoined] looks for the run directory.
const runDirPollInterval = 50 * time.Millisecond

// ReportUnjoined publishes the failure of a node whose daemon has ended before it has joined the
// run, in its place: it has left no record, and the head would wait for it. It waits for the run
// directory until ctx ends, and does nothing if the daemon has joined, or was told to end.
func (r RunDir) ReportUnjoined(ctx context.Context, node int, exit process.Exit) error {
	requested := []int{0, health.OutcomeOfKind(health.Interrupted).Code, health.OutcomeOfKind(health.Terminated).Code}
	if slices.Contains(requested, exit.ShellStatus()) {
		return nil
	}
	dir, _, err := signal.OpenExisting(ctx, r.Path, r.Hosts[node])
	for ; err != nil; dir, _, err = signal.OpenExisting(ctx, r.Path, r.Hosts[node]) {
		if !ctxutil.SleepContext(ctx, runDirPollInterval) {
			return err
		}
	}
	names, err := dir.ListNames(ctx, signal.NodesDir)
	if err != nil || slices.Contains(names, signal.NodeName(node, len(r.Hosts), record.StateJoined)) {
		return err
	}
	name := launcher.NodeLabel(node, r.Hosts[node])
	f := health.NewFailure(health.DaemonDied, "the daemon of %s has ended before it joined: %s", name, exit)
	f.LostNodes, f.Phase = []int{node}, record.PhaseJoin
	failed := signal.NodeName(node, len(r.Hosts), record.StateFailed)
	err = dir.ForNode(node).ClaimRecord(ctx, signal.NodesDir, failed, &f.Failure)
	if errors.Is(err, signal.ErrAlreadyPublished) {
		return nil
	}
	return err
}
