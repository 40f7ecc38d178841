package health

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Observed is a failure with the time at which a daemon learned of it.
type Observed struct {
	signal.FailedRecord
	// At is when this daemon learned of it, on its own monotonic clock. Clocks of different nodes are
	// never compared: the failed node itself has measured Age, the time from the failure to its
	// record.
	At time.Time
}

// happened returns when the failure happened, on the observer's clock, as far as it can be known:
// it does not include the delay of the file system.
func (o Observed) happened() time.Time { return o.At.Add(-o.Age) }

// Verdict is the reason why the job ended.
type Verdict struct {
	Outcome
	Cause        signal.FailedRecord
	Consequences []signal.FailedRecord // the nearest to the cause first
	// BadNodes are the hosts that a requeued job should avoid.
	BadNodes []string
}

// Decide returns the verdict on failures, as one observer knows them. A cause has precedence over a
// consequence, whenever it was seen (see remoteness); among equals the one that happened earlier
// has, then the lower index. A loss that another record explains is its consequence. The order of
// the slice does not matter.
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

// byBlame returns the failures in the order of precedence, the first cause first.
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

// remoteness returns how far a kind of failure is from being a cause; 0 is a cause. A loss with
// evidence besides silence is a cause: among causes the earlier one counts. A deadline passes
// because of something else, and an abort can follow from anything. A peer that is only silent and
// a daemon that was asked to end by SIGTERM are equals: a launcher ends the rest of a job when one
// task has died, and a cancelled job loses its peers one after the other.
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

// outermost is the remoteness of a loss that another record explains; [provoked] is that of a
// rank's failure that is the consequence of another failure.
const (
	provoked  = 3
	outermost = 4
)

// Gentle reports whether a failure of this kind is a requested end.
func Gentle(kind Kind) bool { return kind == Terminated || kind == Interrupted || kind == TimeUp }

// Loss reports whether a failure of this kind is the loss of a peer, instead of a failure on the
// node that wrote the record.
func Loss(kind Kind) bool {
	switch kind {
	case DaemonDied, HostLost, HostHangs, CutOff, PeerLost, NotBack:
		return true
	default:
		return false
	}
}

// testimony has the facts that follow from all records together.
type testimony struct {
	spoke   map[int]bool // nodes that have reported why they end; a killed daemon reports nothing
	sick    map[int]bool // nodes that report that they are cut off, or that the head has declared lost
	aborted map[int]bool // the ranks of the world that have requested the end
	losses  []Observed   // losses that no other record explains
	trouble time.Time    // time of the first failure because of which ranks can fail; zero if there is none
}

// hear collects the facts from all records.
func hear(all []Observed) testimony {
	t := testimony{spoke: make(map[int]bool), sick: make(map[int]bool), aborted: make(map[int]bool)}
	for _, o := range all {
		kind := Kind(o.Kind)
		switch {
		case kind == RankAborted:
			t.aborted[worldRank(o.FailedRecord)] = true
		case kind == RankFailed: // the rank's, not the daemon's
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

// remoteness returns how far a failure is from being the cause, given all failures.
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

// explains reports whether a failure is the consequence of another one, which may have been seen
// later. Only a loss can be: if the reporting node is itself the faulty one, or if each of the lost
// nodes has reported why it ends. A node that reports that it is cut off is believed.
func (t testimony) explains(o Observed) bool {
	if !Loss(Kind(o.Kind)) || Kind(o.Kind) == CutOff {
		return false
	}
	silent := func(rank int) bool { return !t.spoke[rank] }
	return t.sick[o.Rank] || len(o.Lost) > 0 && !slices.ContainsFunc(o.Lost, silent)
}

// badNodes returns the hosts that a requeued job should avoid. If the first cause counts against a
// host, these are the hosts of all failures that are as near to a cause as the first one. A failed
// GPU and a failed check always count against their node, because a GPU failure may be reported
// after its consequences. The death of a service counts against its command, not the node.
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

// WithAccused adds to the bad nodes the hosts that the first cause counts against, because some
// hosts may have been unknown when the verdict was found. cause is nil if there is none.
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

// accused returns the hosts that one failure counts against.
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

// fit reports whether the event that ended the job leaves the GPU fit for another one, according to
// a site's own table of Xids. The report is an event of pkg/gpu.
func fit(failure signal.FailedRecord) bool {
	var event struct {
		Next string `json:"next"`
	}
	return len(failure.Report) > 0 && json.Unmarshal(failure.Report, &event) == nil && event.Next == "fit"
}

func hostsOf(ranks []int, hostOf func(rank int) string) (hosts []string) {
	for _, rank := range ranks {
		if host := hostOf(rank); host != "" { // the launcher may not provide it
			hosts = append(hosts, host)
		}
	}
	return hosts
}
