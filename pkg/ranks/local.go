package ranks

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// LocalRanks starts the ranks of one node and waits for them. The exported fields must be set
// before [LocalRanks.Run].
type LocalRanks struct {
	Ranks []Rank
	Node  string // name of the node, for messages
	World string // name of the world, for messages; empty for the world of a run without roles
	// NewSpec returns the command, environment and binding of a rank. Run calls it concurrently.
	NewSpec func(ctx context.Context, rank Rank) (RankSpec, error)
	// OnStarted is called once: with nil when all ranks have been started, otherwise with the error of
	// a rank that could not be started. It may be nil.
	OnStarted func(error)
	// ContinueOnFailure lets the other ranks continue after a rank has failed.
	ContinueOnFailure bool
	// StrictBinding makes a rank with a wrong binding a failed check instead of a warning.
	StrictBinding bool
	Children      *service.Children
	// Background runs a task in a goroutine. The daemon waits for its end before it exits.
	Background func(task func(ctx context.Context))
	Log        *zap.Logger
	// Rendezvous is notified of the end of each rank. It is nil if the ranks have no rendezvous.
	Rendezvous *rendezvous.Node

	mu      sync.Mutex
	running map[int]process.Handle // ranks that have been started, by rank number; guarded by mu
	exits   []record.RankExit      // ranks that have ended, in the order of their ends; guarded by mu
	// messages that apply to all ranks and have been logged once; guarded by mu
	logged []string
}

// Run starts the ranks concurrently and waits until all have ended. It returns their exits sorted
// by rank, also if it returns an error. The error is a *health.Failure for the first rank that
// failed, unless ContinueOnFailure is set, or the cause of the end of ctx. Ranks that are still
// running when Run returns must be stopped with [service.Children.Stop].
//
// A start in progress when ctx ends continues until starting ends, because its process may already
// run and must get its grace period.
func (c *LocalRanks) Run(ctx, starting context.Context) ([]record.RankExit, error) {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Start the ranks, each with a goroutine that waits for its end.
	var starts errgroup.Group
	starts.SetLimit(2 * runtime.GOMAXPROCS(0)) // each start occupies an OS thread
	var ends sync.WaitGroup
	for _, rank := range c.Ranks {
		starts.Go(func() error {
			if own.Err() != nil {
				return context.Cause(own)
			}
			child, fit, err := c.Start(starting, rank)
			if err != nil {
				cancel(err)
				return err
			}
			ends.Go(func() {
				if err := c.AwaitExit(own, rank, child, fit); err != nil && !c.ContinueOnFailure {
					cancel(err)
				}
			})
			return nil
		})
	}
	err := starts.Wait() // the first error, which is also the cause of own's end
	if c.OnStarted != nil {
		c.OnStarted(err)
	}
	// Wait for the ends of all ranks that have been started, or for the first failure.
	stop := c.WarnStragglers(own)
	ends.Wait()
	stop()
	return c.Exits(), context.Cause(own)
}

// Start starts one rank as NewSpec describes, and verifies its binding.
func (c *LocalRanks) Start(ctx context.Context, rank Rank) (process.Handle, RankSpec, error) {
	fit, err := c.NewSpec(ctx, rank)
	var child process.Handle
	if err == nil {
		child, err = c.StartRank(ctx, rank, fit)
	}
	if err == nil || child != nil {
		return child, fit, err
	}
	if ctx.Err() != nil {
		return nil, fit, context.Cause(ctx)
	}
	return nil, fit, health.NewFailure(service.StartFailureKind(err), "cannot start %s on %s: %v",
		fit.Name, c.Node, strings.TrimPrefix(err.Error(), "cannot start "+fit.Name+": "))
}

// StartRank starts one rank and verifies its binding. It runs fit.OnOutputDone when all output of the
// rank has been processed. Its error is that of [service.Children.Start], or a *health.Failure for a
// rank that runs with a wrong binding.
func (c *LocalRanks) StartRank(ctx context.Context, rank Rank, fit RankSpec) (process.Handle, error) {
	child, err := c.Children.Start(ctx, process.Spec{
		Name: fit.Name, Argv: fit.Argv, Dir: fit.Dir, Env: fit.Env, Files: fit.Files, Stdin: fit.Stdin,
		Stdout: fit.Stdout, Stderr: fit.Stderr,
		Prepare: c.bindBeforeStart(fit.Affinity),
	})
	for _, file := range fit.Files {
		_ = file.Close() // otherwise the server of the rank would never detect its end
	}
	if err != nil {
		return nil, err
	}
	// The rank runs: register it, and process the end of its output.
	c.mu.Lock()
	if c.running == nil {
		c.running = make(map[int]process.Handle)
	}
	c.running[rank.Rank] = child
	c.mu.Unlock()
	c.Background(func(ctx context.Context) {
		if ctxutil.AwaitDone(ctx, child.Ended()) { // otherwise not even KILL has ended it
			<-child.Done() // follows the rank's end within a bounded time
		}
		fit.OnOutputDone()
	})
	return child, c.verifyBinding(rank, child, fit.Affinity)
}

// AwaitExit waits for the end of a rank. It returns nil if the rank succeeded, a *health.Failure if
// the rank failed, or the cause if ctx ends first.
func (c *LocalRanks) AwaitExit(ctx context.Context, rank Rank, child process.Handle, fit RankSpec) error {
	if !ctxutil.AwaitDone(ctx, child.Ended()) {
		return context.Cause(ctx)
	}
	ended, exit := time.Now(), child.Exit()
	c.recordExit(rank, exit)
	if exit.ShellStatus() == 0 {
		return c.unfinalizedFailure(ctx, rank, child, fit)
	}
	if fit.OnFailed != nil {
		fit.OnFailed(exit.ShellStatus())
	}
	// A signal to the whole step also reaches this daemon. Wait for it, so that the signal is recorded
	// as the cause.
	if !ctxutil.SleepContext(ctx, service.SignalDelay(exit)) {
		return context.Cause(ctx)
	}
	f := c.rankFailure(ctx, rank, child, fit)
	f.SeenAt = ended
	// give another rank of this node time to be recorded as the cause
	if !ctxutil.SleepContext(ctx, health.CauseGracePeriod(f)) {
		return context.Cause(ctx)
	}
	return f
}

// unfinalizedFailure returns a failure if a rank exited with code 0 but did not finalize MPI, so
// that its peers wait for it. Otherwise it returns nil.
func (c *LocalRanks) unfinalizedFailure(
	ctx context.Context, rank Rank, child process.Handle, fit RankSpec,
) error {
	if fit.DescribeUnfinalized == nil {
		return nil
	}
	words := fit.DescribeUnfinalized()
	if words == "" {
		return nil
	}
	f := c.rankFailure(ctx, rank, child, fit)
	f.Message += ", " + words
	return f
}

func (c *LocalRanks) rankFailure(
	ctx context.Context, rank Rank, child process.Handle, fit RankSpec,
) *health.Failure {
	f := health.NewRankExitFailure(record.WorldRank{World: c.World, Number: rank.Rank,
		GPUs: strings.Join(fit.Affinity.GPUs, ",")}, c.Node, child.Exit(), child.LastLines())
	return c.Children.AddChildInfo(f, child, fit.readErrorFile(ctx))
}

// AbortHandler returns a function that ends the job on behalf of a rank on host of a world that
// requests it, for example with MPI_Abort. The function calls end immediately, or after a delay if the request
// looks like a consequence of another rank's failure, so that this failure can be observed first.
func AbortHandler(world, host string, end func(error)) func(rank, code int, words string) {
	return func(rank, code int, words string) {
		f := health.NewRankAbortFailure(record.WorldRank{World: world, Number: rank}, host, code, words, nil)
		if wait := health.CauseGracePeriod(f); wait > 0 {
			time.AfterFunc(wait, func() { end(f) })
			return
		}
		end(f)
	}
}

func (c *LocalRanks) recordExit(rank Rank, exit process.Exit) {
	end := record.RankExit{Rank: rank.Rank, Code: exit.ShellStatus(), ExitText: exit.String()}
	if c.Rendezvous != nil {
		c.Rendezvous.ReportRankEnd(rank.Rank, end.ExitText)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exits = append(c.exits, end)
}

// RunningRanks returns the ranks that are running, for the hang diagnosis.
func (c *LocalRanks) RunningRanks() (running []stackdump.RankProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank, child := range c.running {
		if !service.HasEnded(child) {
			printed, _ := child.OutputStats()
			running = append(running, stackdump.RankProcess{Rank: rank, PID: child.PID(), Printed: printed})
		}
	}
	return running
}

// Exits returns the exits of the ranks that have ended, sorted by rank.
func (c *LocalRanks) Exits() []record.RankExit {
	c.mu.Lock()
	defer c.mu.Unlock()
	exits := slices.Clone(c.exits)
	slices.SortFunc(exits, func(a, b record.RankExit) int { return cmp.Compare(a.Rank, b.Rank) })
	return exits
}

// stragglerInterval is the delay before the first warning about ranks that continue after others
// have ended. The delay doubles after each warning.
const stragglerInterval = time.Minute

// WarnStragglers starts a goroutine that warns about ranks that continue long after others have
// ended. The returned function stops the goroutine and waits for its end.
func (c *LocalRanks) WarnStragglers(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		since, wait := time.Time{}, stragglerInterval
		for ctxutil.SleepContext(ctx, time.Second) {
			exits := c.Exits()
			switch {
			case len(exits) == 0:
			case since.IsZero():
				since = time.Now()
			case time.Since(since) >= wait:
				c.Log.Warn(fmt.Sprintf("the first rank on %s ended %s ago, but these still run: %s",
					c.Node, textutil.BriefDuration(time.Since(since)),
					textutil.FormatIndices("rank", c.remainingRanks(exits))))
				wait *= 2
			}
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

func (c *LocalRanks) remainingRanks(exits []record.RankExit) (left []int) {
	for _, rank := range c.Ranks {
		if !slices.ContainsFunc(exits, func(e record.RankExit) bool { return e.Rank == rank.Rank }) {
			left = append(left, rank.Rank)
		}
	}
	return left
}

// WorldExitCode returns the exit code of a world after its ranks have ended, and a description of
// the outcome. all is the number of ranks. failed contains the exits of ranks that failed without
// ending the job; if it is not empty, the exit code is that of its first element.
func WorldExitCode(failed []record.RankExit, all int) (code int, why string) {
	if len(failed) == 0 {
		if all == 1 {
			return 0, "the rank has ended: exit code 0"
		}
		return 0, fmt.Sprintf("all %d ranks have ended: exit code 0", all)
	}
	first := failed[0]
	return first.Code, fmt.Sprintf("all ranks have ended; %d failed, rank %d first: %s", len(failed), first.Rank,
		first.ExitText)
}
