package health

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ObservedFailure is a failure with the time at which a daemon learned of it.
type ObservedFailure struct {
	record.Failure
	// ObservedAt is when this daemon learned of it, on its own monotonic clock. Clocks of different
	// nodes are never compared: the failed node itself has measured Age, the time from the failure to
	// its record.
	ObservedAt time.Time
}

// happenedAt returns when the failure happened, on the observer's clock, as far as it can be known:
// it does not include the delay of the file system.
func (o ObservedFailure) happenedAt() time.Time { return o.ObservedAt.Add(-o.RecordDelay) }

// Verdict is the reason why the job ended.
type Verdict struct {
	Outcome
	Cause        record.Failure
	Consequences []record.Failure // the nearest to the cause first
	BadNodes     []string         // the hosts that a requeued job should avoid
}

// DecideVerdict returns the verdict on failures, as one observer knows them. A cause has precedence
// over a consequence, whenever it was seen (see remoteness); among equals the one that happened
// earlier has, then the lower index. A loss that another record explains is its consequence. The
// order of the slice does not matter.
func DecideVerdict(failures []ObservedFailure, hostOf func(node int) string) Verdict {
	ordered := sortByPrecedence(failures)
	if len(ordered) == 0 {
		unknown := record.Failure{Kind: Internal, Message: "the job failed and no record has the reason"}
		ordered = append(ordered, rankedFailure{ObservedFailure: ObservedFailure{Failure: unknown}})
	}
	first := ordered[0]
	verdict := Verdict{Outcome: OutcomeOfCause(first.Failure), Cause: first.Failure,
		BadNodes: findBadNodes(ordered, hostOf)}
	for _, failure := range ordered[1:] {
		verdict.Consequences = append(verdict.Consequences, failure.Failure)
	}
	return verdict
}

type rankedFailure struct {
	ObservedFailure
	causeDistance int
}

func sortByPrecedence(failures []ObservedFailure) []rankedFailure {
	ordered, all := make([]rankedFailure, len(failures)), collectEvidence(failures)
	for i, failure := range failures {
		ordered[i] = rankedFailure{failure, all.distanceFromCause(failure)}
	}
	slices.SortFunc(ordered, func(a, b rankedFailure) int {
		return cmp.Or(
			cmp.Compare(a.causeDistance, b.causeDistance),
			a.happenedAt().Compare(b.happenedAt()),
			worldRankOf(a.Failure).compare(worldRankOf(b.Failure)),
			cmp.Compare(a.NodeIndex, b.NodeIndex),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Message, b.Message),
			slices.Compare(a.LostNodes, b.LostNodes),
		)
	})
	return ordered
}

// causeDistance returns how far a kind of failure is from being a cause; 0 is a cause. A loss with
// evidence besides silence is a cause: among causes the earlier one counts. A deadline passes
// because of something else, and an abort can follow from anything. A peer that is only silent and
// a daemon that was asked to end by SIGTERM are equals: a launcher ends the rest of a job when one
// task has died, and a cancelled job loses its peers one after the other.
func causeDistance(kind Kind) int {
	switch kind {
	case DeadlinePassed, JobDeadlinePassed:
		return 1
	case PeerLost, Terminated:
		return 2
	case Aborted:
		return 3
	default:
		return 0
	}
}

// outermost is the remoteness of a loss that another record explains; [provokedDistance] is that of
// a rank's failure that is the consequence of another failure.
const (
	provokedDistance  = 3
	explainedDistance = 4
)

// IsRequestedEnd reports whether a failure of this kind is a requested end.
func IsRequestedEnd(kind Kind) bool {
	return kind == Terminated || kind == Interrupted || kind == JobDeadlinePassed || kind == Signalled
}

// IsIsolation reports whether a run that ends by this cause may end for a part of its nodes only:
// the others cannot be reached, or the head is lost. A nil cause is none.
func IsIsolation(cause *record.Failure) bool {
	return cause != nil && (cause.Kind == CutOff || cause.Kind == ShareUnusable || slices.Contains(cause.LostNodes, 0))
}

// IsPeerLoss reports whether a failure of this kind is the loss of a peer, instead of a failure on
// the node that wrote the record.
func IsPeerLoss(kind Kind) bool {
	switch kind {
	case DaemonDied, HostLost, HostHangs, CutOff, PeerLost, NotReturned:
		return true
	default:
		return false
	}
}

type failureEvidence struct {
	// nodes that have reported why they end; a killed daemon reports nothing
	selfReported map[int]bool
	// nodes that report that they are cut off, or that the head has declared lost
	faulty            map[int]bool
	abortedRanks      map[worldRankID]bool // the ranks of the world that have requested the end
	unexplainedLosses []ObservedFailure    // unexplainedLosses that no other record explains
	// time of the first failure because of which ranks can fail; zero if there is none
	firstTrouble time.Time
}

func collectEvidence(all []ObservedFailure) failureEvidence {
	t := failureEvidence{selfReported: make(map[int]bool), faulty: make(map[int]bool),
		abortedRanks: make(map[worldRankID]bool)}
	for _, o := range all {
		kind := o.Kind
		switch {
		case kind == RankAborted:
			t.abortedRanks[worldRankOf(o.Failure)] = true
		case kind == RankFailed, kind == DriverFailed, kind == Signalled: // the program's, not the daemon's
		case kind == CutOff:
			t.selfReported[o.NodeIndex], t.faulty[o.NodeIndex] = true, true
		case !IsPeerLoss(kind):
			t.selfReported[o.NodeIndex] = true
		case o.NodeIndex == 0:
			for _, node := range o.LostNodes {
				t.faulty[node] = node != 0 || t.faulty[node]
			}
		}
	}
	return t.withRankFacts(all)
}

// distanceFromCause returns how far a failure is from being the cause, given all failures.
func (t failureEvidence) distanceFromCause(o ObservedFailure) int {
	switch {
	case t.isExplained(o):
		return explainedDistance
	case t.isProvoked(o):
		return provokedDistance
	default:
		return causeDistance(o.Kind)
	}
}

// isExplained reports whether a failure is the consequence of another one, which may have been seen
// later. Only a loss can be: if the reporting node is itself the faulty one, or if each of the lost
// nodes has reported why it ends. A node that reports that it is cut off is believed.
func (t failureEvidence) isExplained(o ObservedFailure) bool {
	if !IsPeerLoss(o.Kind) || o.Kind == CutOff {
		return false
	}
	silent := func(node int) bool { return !t.selfReported[node] }
	return t.faulty[o.NodeIndex] || len(o.LostNodes) > 0 && !slices.ContainsFunc(o.LostNodes, silent)
}

// findBadNodes returns the hosts that a requeued job should avoid. If the first cause counts
// against a host, these are the hosts of all failures that are as near to a cause as the first one.
// A failed GPU and a failed check always count against their node, because a GPU failure may be
// reported after its consequences. The death of a service counts against its command, not the node.
func findBadNodes(ordered []rankedFailure, hostOf func(node int) string) []string {
	var hosts []string
	speaks := len(blamedHosts(ordered[0].Failure, hostOf)) > 0
	for _, failure := range ordered {
		if evident := failure.Kind == GPUFailed || failure.Kind == CheckFailed; !evident &&
			(!speaks || failure.causeDistance > ordered[0].causeDistance) {
			continue
		}
		for _, host := range blamedHosts(failure.Failure, hostOf) {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// AddBlamedHosts adds to the bad nodes the hosts that the first cause counts against, because some
// hosts may have been unknown when the verdict was found. cause is nil if there is none.
func AddBlamedHosts(nodes []string, cause *record.Failure, hostOf func(node int) string) []string {
	if cause == nil {
		return nodes
	}
	nodes = slices.Clip(nodes)
	for _, host := range blamedHosts(*cause, hostOf) {
		if !slices.Contains(nodes, host) {
			nodes = append(nodes, host)
		}
	}
	return nodes
}

func blamedHosts(failure record.Failure, hostOf func(node int) string) (hosts []string) {
	switch kind := failure.Kind; {
	case kind == GPUFailed && LeavesGPUFit(failure):
		return nil
	case kind == CheckFailed, kind == GPUFailed, kind == CutOff:
		return []string{failure.Host}
	case IsPeerLoss(kind), kind == NodesDiffer:
		return hostNames(failure.LostNodes, hostOf)
	default:
		return nil
	}
}

// LeavesGPUFit reports whether the event that ended the job leaves the GPU fit for another one,
// according to a site's own table of Xids. The report is an event of pkg/gpu.
func LeavesGPUFit(failure record.Failure) bool {
	var event struct {
		Next string `json:"next"`
	}
	return json.Unmarshal(failure.Report, &event) == nil && event.Next == "fit"
}

func hostNames(nodes []int, hostOf func(node int) string) (hosts []string) {
	for _, node := range nodes {
		if host := hostOf(node); host != "" { // the launcher may not provide it
			hosts = append(hosts, host)
		}
	}
	return hosts
}
