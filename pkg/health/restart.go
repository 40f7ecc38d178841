package health

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// RestartPolicy is what decides, besides the failure, whether a run is begun anew
// within its launch.
type RestartPolicy struct {
	Most    int   // how often it may be; 0: nobody has asked for it
	Attempt int   // which one has failed: 0 is the first
	Told    bool  // this daemon was told to end: who did that decides what comes next
	Unfit   []int // the ranks to do without from now on, in order
	Nodes   int   // of the launch
	Least   int   // that the driver needs
}

// RestartDecision is whether there is another attempt.
type RestartDecision struct {
	Again bool
	Why   string // in words; empty where nobody has asked for it
}

// DecideRestart decides whether a run that ends by this cause is begun anew within
// its launch. A node that was lost may come back: its next attempt finds out.
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

// Unfit are the ranks, in order, of the nodes that these failures of one run speak
// against for the next attempt. One that was only lost may come back.
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

// Missed are the ranks, in order, that these failures of one run miss.
func Missed(failures ...signal.FailedRecord) (ranks []int) {
	for _, failure := range failures {
		if Loss(Kind(failure.Kind)) {
			ranks = append(ranks, failure.Lost...)
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
