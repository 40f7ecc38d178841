package runs

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Goal is what a user waits for.
type Goal string

// The goals.
const (
	GoalUp  Goal = "up"  // the gate is open
	GoalEnd Goal = "end" // the run has ended, and no further attempt follows
)

// Goals lists the goals.
func Goals() []string { return []string{string(GoalUp), string(GoalEnd)} }

// IsReached reports whether there is nothing more to wait for: the goal is reached, or it cannot be
// reached any more.
func (g Goal) IsReached(status timeline.Status) bool {
	return status.Over() || status.Silent ||
		g == GoalUp && (status.State == timeline.StateUp || status.State == timeline.StateUnknown)
}

// ExitCode returns the exit code for a status with which the wait ended, and which is not silent:
// that of the run if it has ended, and otherwise 0. A run that has ended with 0 before it was up, or
// whose state is unknown, has code 1 for GoalUp, and one without a result for both.
func (g Goal) ExitCode(status timeline.Status) int {
	switch {
	case status.State == timeline.StateUnknown:
		return 1
	case !status.Over():
		return 0
	case status.End == nil, g == GoalUp && status.End.Code == 0 && status.ToGate == 0:
		return 1
	default:
		return status.End.Code
	}
}

// RequeuedRun returns the name of the run that follows a run with this directory because it has
// asked for a requeue of its job, or an empty string if it has not.
func RequeuedRun(ctx context.Context, path string) (string, error) {
	run, err := timeline.Read(ctx, path, timeline.DepthQuick)
	if err != nil || run.Result == nil || run.Job == nil {
		return "", err
	}
	if decision := run.Result.Requeue; decision == nil || !decision.Wanted {
		return "", nil
	}
	return launcher.RequeueName(run.Result.Run, run.Job.LaunchID), nil
}

// AwaitGoal waits until the run reaches the goal, or cannot reach it any more, and returns its
// status then. If another attempt follows, it waits for that, unless the job has ended meanwhile. It
// passes the first status to begin.
func (w Waiter) AwaitGoal(
	ctx context.Context, path string, goal Goal, begin func(first timeline.Status),
) (last timeline.Status, err error) {
	for isFirst := true; ; isFirst = false {
		observer := Observer{Path: path}
		if last, err = observer.ReadStatus(ctx); err != nil {
			return last, err
		}
		if isFirst {
			begin(last)
		}
		err = observer.Watch(ctx, last, func(status timeline.Status) error {
			last = status
			return nil
		}, goal.IsReached)
		if err != nil || !last.Over() || last.NextAttempt == 0 {
			return last, err
		}
		logDir, next := filepath.Dir(path), launcher.AttemptName(last.Run, last.NextAttempt)
		find := func(ctx context.Context) (string, error) { return findIn(ctx, logDir, next) }
		path, err = w.Await(ctx, find)
		if none, hasEnded := errors.AsType[*NoRunError](err); hasEnded {
			w.Say("%s does not follow: its job has ended (%s)", next, none.JobState)
			err = nil // the last result is that of the job
		} else if err == nil {
			continue
		}
		return last, err
	}
}
