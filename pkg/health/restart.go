package health

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RestartPolicy has the facts besides the failure that decide whether a run is restarted within its
// launch.
type RestartPolicy struct {
	MaxRestarts  int   // maximum number of restarts; 0: none
	Attempt      int   // the failed attempt: 0 is the first
	EndRequested bool  // this daemon was asked to end: the sender decides what comes next
	UnfitNodes   []int // the sorted indices of nodes that must not be used any more
	Nodes        int   // number of nodes in the launch
	MinNodes     int   // minimum number of nodes for the driver
}

// RestartDecision is the decision whether another attempt follows.
type RestartDecision struct {
	Restart bool
	Reason  string // in words; empty if the user does not want restarts
}

// DecideRestart decides whether a run with this cause is restarted within its launch. A lost node
// may return, which the next attempt finds out.
func DecideRestart(cause record.Failure, policy RestartPolicy) RestartDecision {
	outcome := OutcomeOfCause(cause)
	what := fmt.Sprintf("%s (%d)", outcome.Name, outcome.Code)
	left := policy.Nodes - len(policy.UnfitNodes)
	switch {
	case policy.MaxRestarts == 0:
		return RestartDecision{}
	case policy.EndRequested:
		return RestartDecision{Reason: what + ": the job was told to end from outside"}
	case outcome.Requeue != RequeueYes && outcome.Requeue != RequeueElsewhere:
		return RestartDecision{Reason: what + " cannot be fixed by another attempt"}
	case policy.Attempt >= policy.MaxRestarts:
		return RestartDecision{Reason: fmt.Sprintf("%s again, in attempt %d of at most %d", what, policy.Attempt+1, policy.MaxRestarts+1)}
	case cause.Kind == NotReturned:
		return RestartDecision{Reason: what + ": the lost daemons were not restarted"}
	case slices.Contains(policy.UnfitNodes, 0):
		return RestartDecision{Reason: what + ": the head's node has failed, and the launch requires it"}
	case left < policy.MinNodes:
		return RestartDecision{Reason: fmt.Sprintf("%s: %d of %d nodes are left, and the driver needs %d", what, left, policy.Nodes, policy.MinNodes)}
	default:
		return RestartDecision{Restart: true, Reason: fmt.Sprintf("%s: attempt %d of at most %d follows", what, policy.Attempt+2, policy.MaxRestarts+1)}
	}
}

// UnfitNodes returns the sorted indices of nodes that must not be used in the next attempt,
// according to the failures of one run. A node that was only lost may return.
func UnfitNodes(failures ...record.Failure) (nodes []int) {
	for _, failure := range failures {
		switch kind := failure.Kind; {
		case kind == CheckFailed, kind == GPUFailed && !leavesGPUFit(failure):
			nodes = append(nodes, failure.NodeIndex)
		case kind == NodesDiffer:
			nodes = append(nodes, failure.LostNodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// LostNodes returns the sorted indices of the lost nodes in the failures of one run.
func LostNodes(failures ...record.Failure) (nodes []int) {
	for _, failure := range failures {
		if IsPeerLoss(failure.Kind) {
			nodes = append(nodes, failure.LostNodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
