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

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/why"
)

// Crew are the ranks of one node.
type Crew struct {
	Ranks []Rank
	Node  string // in messages
	Fit   func(ctx context.Context, rank Rank) (Fit, error)
	// Started is told when all were started, or why one was not; nil: nobody is.
	Started func(error)
	// GoOn has the others run on where one has failed.
	GoOn bool
	// Strict makes a rank that is not where it should be a failed check.
	Strict   bool
	Children *service.Children
	// Background runs a task that the daemon waits for.
	Background func(task func(ctx context.Context))
	Log        *zap.Logger
	// Meet is told of each rank that has ended; nil: they don't meet.
	Meet *meeting.Node
	// Play stands in for the ranks where that is not nil, until ctx ends: a simulation has no processes.
	Play func(ctx context.Context, meet *meeting.Node, ranks []Rank) error

	mu      sync.Mutex
	running map[int]process.Handle // that have been started, by rank; guarded by mu
	exits   []signal.RankExit      // of those that have ended, in the order of their ends; guarded by mu
	said    []string               // what holds for all of them, and was told; guarded by mu
}

// Run starts the ranks side by side and waits until all have ended. How each has is
// returned in the order of the ranks, also with an error: the first rank that has
// failed, a *health.Failure, unless the others go on; or why ctx has ended. Who runs
// on then is left to the Children's Stop. A start that has begun when ctx ends goes on
// until starting does: who is being started may run already, and is owed a grace.
func (c *Crew) Run(ctx, starting context.Context) ([]signal.RankExit, error) {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.Play != nil {
		cancel(c.Play(own, c.Meet, c.Ranks))
		return nil, context.Cause(own)
	}
	var starts errgroup.Group
	starts.SetLimit(2 * runtime.GOMAXPROCS(0)) // each has a thread of its own
	var ends sync.WaitGroup
	for _, rank := range c.Ranks {
		starts.Go(func() error {
			if own.Err() != nil {
				return context.Cause(own)
			}
			child, fit, err := c.start(starting, rank)
			if err != nil {
				cancel(err)
				return err
			}
			ends.Go(func() {
				if err := c.await(own, rank, child, fit); err != nil && !c.GoOn {
					cancel(err)
				}
			})
			return nil
		})
	}
	err := starts.Wait() // which is why own has ended
	if c.Started != nil {
		c.Started(err)
	}
	stop := c.tellStragglers(own)
	ends.Wait()
	stop()
	return c.ended(), context.Cause(own)
}

// start starts one rank.
func (c *Crew) start(ctx context.Context, rank Rank) (process.Handle, Fit, error) {
	fit, err := c.Fit(ctx, rank)
	var child process.Handle
	if err == nil {
		child, err = c.Children.Start(ctx, process.Spec{
			Name: service.Rank(rank.Rank), Argv: fit.Argv, Dir: fit.Dir, Env: fit.Env, Files: fit.Files, Stdin: fit.In, Stdout: fit.Out, Stderr: fit.Err,
			Prepare: c.prepare(fit.Place),
		})
	}
	for _, file := range fit.Files {
		_ = file.Close() // or who serves the rank would never see its end
	}
	if err != nil && ctx.Err() != nil {
		return nil, fit, context.Cause(ctx)
	}
	if err != nil {
		return nil, fit, health.Failed(service.Unstarted(err), "cannot start %s on %s: %v",
			service.Rank(rank.Rank), c.Node, strings.TrimPrefix(err.Error(), "cannot start "+service.Rank(rank.Rank)+": "))
	}
	c.mu.Lock()
	if c.running == nil {
		c.running = make(map[int]process.Handle)
	}
	c.running[rank.Rank] = child
	c.mu.Unlock()
	c.Background(func(context.Context) {
		<-child.Done() // it comes a bounded time after the rank's end
		fit.Done()
	})
	return child, fit, c.bound(rank, child, fit.Place)
}

// await waits for the end of a rank. Its error is the rank's failure, or that ctx
// has ended first.
func (c *Crew) await(ctx context.Context, rank Rank, child process.Handle, fit Fit) error {
	if !pause.Await(ctx, child.Ended()) {
		return context.Cause(ctx)
	}
	ended, exit := time.Now(), child.Exit()
	c.note(rank, exit)
	if exit.Status() == 0 {
		return c.parted(rank, child, fit)
	}
	if fit.Died != nil {
		fit.Died(exit.Status())
	}
	// Who signals a whole step has signalled this daemon, too.
	if !pause.For(ctx, service.Skew(exit)) {
		return context.Cause(ctx)
	}
	f := c.failure(rank, child, fit)
	f.Seen = ended
	if !pause.For(ctx, health.Yield(f)) { // another rank here is the cause of it
		return context.Cause(ctx)
	}
	return f
}

// parted is that a rank has ended well, and left those that it meets by MPI waiting; nil: it has not.
func (c *Crew) parted(rank Rank, child process.Handle, fit Fit) error {
	if fit.Parted == nil {
		return nil
	}
	words := fit.Parted()
	if words == "" {
		return nil
	}
	f := c.failure(rank, child, fit)
	f.What += ", " + words
	return f
}

// failure is that a rank has failed.
func (c *Crew) failure(rank Rank, child process.Handle, fit Fit) *health.Failure {
	f := health.RankDied(signal.WorldRank{Number: rank.Rank, GPUs: strings.Join(fit.Place.GPUs, ",")}, c.Node, child.Exit(), child.LastLines())
	return c.Children.About(f, child)
}

// Asked has a job ended by a rank on host that asks for it: at once, or, where it looks as if it did so because another rank has failed, when
// that one of this node could have been heard of.
func Asked(host string, end func(error)) func(rank, code int, words string) {
	return func(rank, code int, words string) {
		f := health.RankAsked(signal.WorldRank{Number: rank}, host, code, words, nil)
		if wait := health.Yield(f); wait > 0 {
			time.AfterFunc(wait, func() { end(f) })
			return
		}
		end(f)
	}
}

// note keeps how a rank has ended.
func (c *Crew) note(rank Rank, exit process.Exit) {
	end := signal.RankExit{Rank: rank.Rank, Code: exit.Status(), Exit: exit.String()}
	if c.Meet != nil {
		c.Meet.RankEnded(rank.Rank, end.Exit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exits = append(c.exits, end)
}

// Running are the ranks that run, for who watches what they do.
func (c *Crew) Running() (running []why.Rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank, child := range c.running {
		if !service.Ended(child) {
			printed, _ := child.Printed()
			running = append(running, why.Rank{Rank: rank, PID: child.Pid(), Printed: printed})
		}
	}
	return running
}

// ended is how the ranks have ended so far, in their order.
func (c *Crew) ended() []signal.RankExit {
	c.mu.Lock()
	defer c.mu.Unlock()
	exits := slices.Clone(c.exits)
	slices.SortFunc(exits, func(a, b signal.RankExit) int { return cmp.Compare(a.Rank, b.Rank) })
	return exits
}

// stragglerTime is from when on people are told, at longer and longer intervals, of
// the ranks that go on when others have ended.
const stragglerTime = time.Minute

// tellStragglers tells of them until the function that it returns is called, which
// waits for that.
func (c *Crew) tellStragglers(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		since, wait := time.Time{}, stragglerTime
		for pause.For(ctx, time.Second) {
			exits := c.ended()
			switch {
			case len(exits) == 0:
			case since.IsZero():
				since = time.Now()
			case time.Since(since) >= wait:
				c.Log.Warn(fmt.Sprintf("of the ranks on %s the first ended %s ago, and still there: %s",
					c.Node, prose.Brief(time.Since(since)), prose.Ranks(c.left(exits))))
				wait *= 2
			}
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

// left are the ranks that go on.
func (c *Crew) left(exits []signal.RankExit) (left []int) {
	for _, rank := range c.Ranks {
		if !slices.ContainsFunc(exits, func(e signal.RankExit) bool { return e.Rank == rank.Rank }) {
			left = append(left, rank.Rank)
		}
	}
	return left
}

// Conclude returns by which code a world of so many ranks ends that all have, and why: by the first of those that have not
// ended well, where the job went on after them.
func Conclude(failed []signal.RankExit, all int) (code int, why string) {
	if len(failed) == 0 {
		return 0, fmt.Sprintf("all %d ranks have ended: exit code 0", all)
	}
	first := failed[0]
	return first.Code, fmt.Sprintf("all ranks have ended, %d of them not well, and rank %d first: %s", len(failed), first.Rank, first.Exit)
}
