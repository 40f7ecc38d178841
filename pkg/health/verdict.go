package health

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Observed is a failure as one daemon came to know of it.
type Observed struct {
	signal.FailedRecord
	// At is when this daemon came to know of it, on its own monotonic clock. No
	// clock of another node is compared: Age, the time from the failure to its
	// record, was measured on the node where it happened.
	At time.Time
}

// happened is when the failure happened, on the observer's clock, as far as it
// can be known: what the share took to show the record is not in it.
func (o Observed) happened() time.Time { return o.At.Add(-o.Age) }

// Verdict is why the job ended.
type Verdict struct {
	Outcome
	Cause        signal.FailedRecord
	Consequences []signal.FailedRecord // the nearest to the cause first
	// BadNodes are the hosts that a requeued job should stay away from.
	BadNodes []string
}

// Decide returns the verdict on failures, as one observer knows them. A cause
// outranks a consequence whenever it was seen (see remoteness); among equals
// the one that happened earlier does, then the lower rank. A loss that another
// record explains is a consequence of it. The order of the slice does not
// matter.
func Decide(failures []Observed, hostOf func(rank int) string) Verdict {
	ordered := byBlame(failures)
	if len(ordered) == 0 {
		unknown := signal.FailedRecord{Kind: string(Internal), What: "the job failed and no record says why"}
		ordered = append(ordered, blamed{Observed: Observed{FailedRecord: unknown}})
	}
	first := ordered[0]
	verdict := Verdict{Outcome: OutcomeBy(first.FailedRecord), Cause: first.FailedRecord, BadNodes: badNodes(ordered, hostOf)}
	for _, failure := range ordered[1:] {
		verdict.Consequences = append(verdict.Consequences, failure.FailedRecord)
	}
	return verdict
}

// blamed is a failure with its distance from a cause.
type blamed struct {
	Observed
	remoteness int
}

// byBlame returns the failures in the order of their blame, the first cause
// first.
func byBlame(failures []Observed) []blamed {
	ordered, all := make([]blamed, len(failures)), hear(failures)
	for i, failure := range failures {
		ordered[i] = blamed{failure, all.remoteness(failure)}
	}
	slices.SortFunc(ordered, func(a, b blamed) int {
		return cmp.Or(
			cmp.Compare(a.remoteness, b.remoteness),
			a.happened().Compare(b.happened()),
			cmp.Compare(worldRank(a.FailedRecord), worldRank(b.FailedRecord)),
			cmp.Compare(a.Rank, b.Rank),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.What, b.What),
			slices.Compare(a.Lost, b.Lost),
		)
	})
	return ordered
}

// remoteness tells how far a kind of failure is from being a cause; 0: it is one.
// So is a loss for which there is evidence, besides silence: among causes the
// earlier one counts. A deadline passes because of something else, and an abort
// can follow from anything. A peer that is only silent and a daemon that was told
// to end by SIGTERM are equals: a launcher ends the rest of a job of which one
// task has died, and a job that is cancelled loses its peers one after the other.
func remoteness(kind Kind) int {
	switch kind {
	case Deadline, TimeUp:
		return 1
	case PeerLost, Terminated:
		return 2
	case Aborted:
		return 3
	default:
		return 0
	}
}

// outermost is the remoteness of a loss that is explained, and provoked that of a
// rank's failure that looks like a consequence of others.
const (
	provoked  = 3
	outermost = 4
)

// Gentle tells whether a failure of this kind is an end that somebody has asked for.
func Gentle(kind Kind) bool { return kind == Terminated || kind == Interrupted || kind == TimeUp }

// Loss tells whether a failure of this kind is the loss of a peer, and not
// something that has failed where the record was written.
func Loss(kind Kind) bool {
	switch kind {
	case DaemonDied, HostLost, HostHangs, CutOff, PeerLost, NotBack:
		return true
	default:
		return false
	}
}

// testimony is what the records say of the ranks, all of them together.
type testimony struct {
	spoke   map[int]bool // has said itself why it goes: a daemon that is killed says nothing
	sick    map[int]bool // is cut off by its own word, or missed by the head
	aborted map[int]bool // the ranks of the world that have asked for the end
	losses  []Observed   // that nothing explains
	trouble time.Time    // when the first happened of which ranks can fail; zero where nothing has
}

func hear(all []Observed) testimony {
	t := testimony{spoke: make(map[int]bool), sick: make(map[int]bool), aborted: make(map[int]bool)}
	for _, o := range all {
		kind := Kind(o.Kind)
		switch {
		case kind == RankAborted:
			t.aborted[worldRank(o.FailedRecord)] = true
		case kind == RankFailed: // of its rank, and not of its daemon
		case kind == CutOff:
			t.spoke[o.Rank], t.sick[o.Rank] = true, true
		case !Loss(kind):
			t.spoke[o.Rank] = true
		case o.Rank == 0:
			for _, rank := range o.Lost {
				t.sick[rank] = rank != 0 || t.sick[rank]
			}
		}
	}
	return t.ofRanks(all)
}

// remoteness tells how far a failure is from being the cause, knowing all of them.
func (t testimony) remoteness(o Observed) int {
	switch {
	case t.explains(o):
		return outermost
	case t.provoked(o):
		return provoked
	default:
		return remoteness(Kind(o.Kind))
	}
}

// explains tells whether a failure is the consequence of another, which may have
// been seen later. Only a loss can be: where it is the reporting node that is
// sick, or where each of the missed nodes has said why it goes. A node that says
// of itself that it is cut off is believed.
func (t testimony) explains(o Observed) bool {
	if !Loss(Kind(o.Kind)) || Kind(o.Kind) == CutOff {
		return false
	}
	silent := func(rank int) bool { return !t.spoke[rank] }
	return t.sick[o.Rank] || len(o.Lost) > 0 && !slices.ContainsFunc(o.Lost, silent)
}

// badNodes names the nodes that the failures speak against, where the first
// cause speaks against one: all that failed in the same way, or by themselves.
// A service that died speaks of its command, not of the node. A GPU that has
// failed and a check that was failed speak against their node, whatever the
// cause: a GPU may have been told of after what died of it.
func badNodes(ordered []blamed, hostOf func(rank int) string) []string {
	var hosts []string
	speaks := len(accused(ordered[0].FailedRecord, hostOf)) > 0
	for _, failure := range ordered {
		if evident := Kind(failure.Kind) == GPUFailed || Kind(failure.Kind) == Check; !evident && (!speaks || failure.remoteness > ordered[0].remoteness) {
			continue
		}
		for _, host := range accused(failure.FailedRecord, hostOf) {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// WithAccused are bad nodes, and those that the first cause speaks against by hosts that were not known when it was
// found. The cause is nil where there is none.
func WithAccused(nodes []string, cause *signal.FailedRecord, hostOf func(rank int) string) []string {
	if cause == nil {
		return nodes
	}
	nodes = slices.Clip(nodes)
	for _, host := range accused(*cause, hostOf) {
		if !slices.Contains(nodes, host) {
			nodes = append(nodes, host)
		}
	}
	return nodes
}

// accused are the hosts that one failure speaks against.
func accused(failure signal.FailedRecord, hostOf func(rank int) string) (hosts []string) {
	switch kind := Kind(failure.Kind); {
	case kind == GPUFailed && fit(failure):
		return nil
	case kind == Check, kind == GPUFailed, kind == CutOff:
		return []string{failure.Host}
	case Loss(kind), kind == NodesDiffer:
		return hostsOf(failure.Lost, hostOf)
	default:
		return nil
	}
}

// fit tells whether what ended the job leaves the GPU fit for another one, as a site's own table of Xids may have it:
// the report is pkg/gpu's event.
func fit(failure signal.FailedRecord) bool {
	var event struct {
		Next string `json:"next"`
	}
	return len(failure.Report) > 0 && json.Unmarshal(failure.Report, &event) == nil && event.Next == "fit"
}

func hostsOf(ranks []int, hostOf func(rank int) string) (hosts []string) {
	for _, rank := range ranks {
		if host := hostOf(rank); host != "" { // a launcher may not tell
			hosts = append(hosts, host)
		}
	}
	return hosts
}
