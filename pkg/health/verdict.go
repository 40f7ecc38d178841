package health

import (
	"cmp"
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Observed is a failure as one daemon came to know of it.
type Observed struct {
	signal.FailedRecord
	// Look is the number of the look at the share that showed it. It orders
	// what one observer saw; no clock of another node is asked.
	Look int
}

// Verdict is why the job ended.
type Verdict struct {
	Outcome
	Cause        signal.FailedRecord
	Consequences []signal.FailedRecord
	// BadNodes are the hosts that a requeued job should stay away from.
	BadNodes []string
}

// Decide returns the verdict on failures. A cause outranks a consequence
// whenever it was seen; among equals the one that was seen earlier does, then
// the lower rank. The order of the slice does not matter.
func Decide(failures []Observed, hostOf func(rank int) string) Verdict {
	ordered := slices.Clone(failures)
	slices.SortFunc(ordered, byBlame)
	if len(ordered) == 0 {
		unknown := signal.FailedRecord{Kind: string(Internal), What: "the job failed and no record says why"}
		ordered = append(ordered, Observed{FailedRecord: unknown})
	}
	first := ordered[0]
	verdict := Verdict{Outcome: OutcomeOf(Kind(first.Kind)), Cause: first.FailedRecord}
	for _, failure := range ordered[1:] {
		verdict.Consequences = append(verdict.Consequences, failure.FailedRecord)
	}
	verdict.BadNodes = badNodes(first.FailedRecord, hostOf)
	return verdict
}

func byBlame(a, b Observed) int {
	return cmp.Or(
		cmp.Compare(remoteness(Kind(a.Kind)), remoteness(Kind(b.Kind))),
		cmp.Compare(a.Look, b.Look),
		cmp.Compare(a.Rank, b.Rank),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.What, b.What),
	)
}

// remoteness grows with the distance from a cause: a deadline passes because of
// something, an abort follows from anything. A peer that is lost and a daemon
// told to end by SIGTERM are equals: a launcher ends the rest of a job of which
// one task has died, and a job that is cancelled loses its peers as it goes.
func remoteness(kind Kind) int {
	switch kind {
	case Deadline:
		return 1
	case PeerLost, Terminated:
		return 2
	case Aborted:
		return 3
	default:
		return 0
	}
}

// badNodes names the nodes that a failure speaks against. A service that died
// speaks of its command, not of the node.
func badNodes(cause signal.FailedRecord, hostOf func(rank int) string) []string {
	switch Kind(cause.Kind) {
	case Check:
		return []string{cause.Host}
	case PeerLost, DaemonDied, HostLost, HostHangs, CutOff:
		var hosts []string
		for _, rank := range cause.Lost {
			hosts = append(hosts, hostOf(rank))
		}
		return hosts
	default:
		return nil
	}
}

// Loss tells whether a failure of that kind is the loss of a peer.
func Loss(kind Kind) bool {
	switch kind {
	case DaemonDied, HostLost, HostHangs, CutOff, PeerLost:
		return true
	default:
		return false
	}
}
