package health

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// RestartPolicy has the facts besides the failure that decide whether a run is restarted within its
// launch.
type RestartPolicy struct {
	Most    int   // maximum number of restarts; 0: none
	Attempt int   // the failed attempt: 0 is the first
	Told    bool  // this daemon was asked to end: the sender decides what comes next
	Unfit   []int // the sorted indices of nodes that must not be used any more
	Nodes   int   // number of nodes in the launch
	Least   int   // minimum number of nodes for the driver
}

// RestartDecision is the decision whether another attempt follows.
type RestartDecision struct {
	Again bool
	Why   string // in words; empty if the user does not want restarts
}

// DecideRestart decides whether a run with this cause is restarted within its launch. A lost node
// may return, which the next attempt finds out.
func DecideRestart(cause signal.FailedRecord, policy RestartPolicy) RestartDecision {
	outcome := OutcomeBy(cause)
	what := fmt.Sprintf("%s (%d)", outcome.Word, outcome.Code)
	left := policy.Nodes - len(policy.Unfit)
	switch {
	case policy.Most == 0:
		return RestartDecision{}
	case policy.Told:
		return RestartDecision{Why: what + ": the job was told to end, and who told it decides"}
	case outcome.Requeue != RequeueYes && outcome.Requeue != RequeueElsewhere:
		return RestartDecision{Why: what + " is nothing that another attempt would mend"}
	case policy.Attempt >= policy.Most:
		return RestartDecision{Why: fmt.Sprintf("%s once more, in attempt %d of at most %d", what, policy.Attempt+1, policy.Most+1)}
	case Kind(cause.Kind) == NotBack:
		return RestartDecision{Why: what + ": nobody has started the daemons anew that are lost"}
	case slices.Contains(policy.Unfit, 0):
		return RestartDecision{Why: what + ": something is wrong with the head's own node, which the launch can't do without"}
	case left < policy.Least:
		return RestartDecision{Why: fmt.Sprintf("%s: %d of %d nodes are left, and the driver needs %d", what, left, policy.Nodes, policy.Least)}
	default:
		return RestartDecision{Again: true, Why: fmt.Sprintf("%s: attempt %d of at most %d follows", what, policy.Attempt+2, policy.Most+1)}
	}
}

// Unfit returns the sorted indices of nodes that must not be used in the next attempt, according to
// the failures of one run. A node that was only lost may return.
func Unfit(failures ...signal.FailedRecord) (ranks []int) {
	for _, failure := range failures {
		switch kind := Kind(failure.Kind); {
		case kind == Check, kind == GPUFailed && !fit(failure):
			ranks = append(ranks, failure.Rank)
		case kind == NodesDiffer:
			ranks = append(ranks, failure.Lost...)
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// Missed returns the sorted indices of the lost nodes in the failures of one run.
func Missed(failures ...signal.FailedRecord) (ranks []int) {
	for _, failure := range failures {
		if Loss(Kind(failure.Kind)) {
			ranks = append(ranks, failure.Lost...)
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
