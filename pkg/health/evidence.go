package health

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// EvidenceTime is for how long at most a failed check of the environment waits for other nodes'
// records, which show whether the node or the launch is at fault. It ends with the first node that
// passes, and when all nodes have spoken.
const EvidenceTime = 30 * time.Second

// checkedTime is for how long at most a failed check that counts against its node waits for other
// nodes that fail theirs, so that a job that is started anew avoids them all.
const checkedTime = time.Second

// Patience returns for how much longer than for another failure a node waits for the end that the
// head makes of one of this kind.
func Patience(kind Kind) time.Duration {
	if kind == CheckEnvironment {
		return EvidenceTime
	}
	return 0
}

// finding is what matters here of a finding of pkg/check.
type finding struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict"`
	Class   string `json:"class"`
}

// findings returns those of a failed check; nil if the record has none.
func findings(f signal.FailedRecord) []finding {
	var report struct {
		Findings []finding `json:"findings"`
	}
	if len(f.Report) == 0 || json.Unmarshal(f.Report, &report) != nil {
		return nil
	}
	return report.Findings
}

// environment returns the ids of the checks of the environment that a node failed. A failure
// without a report has one without a name.
func environment(f signal.FailedRecord) (ids []string) {
	all := findings(f)
	for _, found := range all {
		if found.Verdict == "FAIL" && found.Class == "environment" {
			ids = append(ids, found.ID)
		}
	}
	if len(all) == 0 && Kind(f.Kind) == CheckEnvironment {
		ids = append(ids, "")
	}
	return ids
}

// passes reports whether a node that has failed otherwise has passed the check of that id.
func passes(f signal.FailedRecord, id string) bool {
	all := findings(f)
	of := func(found finding) bool { return found.ID == id }
	return slices.ContainsFunc(all, of) && !slices.ContainsFunc(all, func(found finding) bool { return of(found) && found.Verdict == "FAIL" })
}

// Passed returns the ranks whose records show that they have passed their checks: those that say so,
// and those whose service is up, which took a directory for temporary files besides.
func Passed(l signal.Listing) []int {
	return slices.Concat(l.Ranks(signal.Checked), l.Ranks(signal.Up))
}

// Weigh returns the failures with each CheckEnvironment replaced by what it is evidence of: Check if
// another node has passed the same check, by the ranks that passed all of theirs or by the other
// failures' reports; CheckUser otherwise, also if it is the only node. The causes of earlier
// attempts, which are asked for only if they matter, overrule this: a check that was failed on
// another node before is the launch's fault. The other failures stay as they are.
func Weigh(failures []Observed, passed []int, earlier func() []signal.FailedRecord) []Observed {
	weighed := slices.Clone(failures)
	for i, o := range failures {
		if Kind(o.Kind) != CheckEnvironment {
			continue
		}
		weighed[i].Kind = string(CheckUser)
		switch ids := environment(o.FailedRecord); {
		case !othersPass(o, ids, failures, passed):
			weighed[i].What += "; no other node is known to have passed this check, so that the launch is at fault, not the node"
		case slices.ContainsFunc(earlier(), func(before signal.FailedRecord) bool { return repeats(before, o.Host, ids) }):
			weighed[i].What += "; an earlier attempt failed the same check on another node, so that the launch is at fault, not the node"
		default:
			weighed[i].Kind = string(Check)
		}
	}
	return weighed
}

// othersPass reports whether another node has passed one of the checks that this one failed.
func othersPass(o Observed, ids []string, failures []Observed, passed []int) bool {
	if slices.ContainsFunc(passed, func(rank int) bool { return rank != o.Rank }) {
		return true
	}
	return slices.ContainsFunc(failures, func(other Observed) bool {
		return other.Rank != o.Rank && slices.ContainsFunc(ids, func(id string) bool { return passes(other.FailedRecord, id) })
	})
}

// repeats reports whether an earlier attempt ended by one of these checks on another host.
func repeats(before signal.FailedRecord, host string, ids []string) bool {
	return before.Host != host && slices.ContainsFunc(environment(before), func(id string) bool { return slices.Contains(ids, id) })
}

// unspoken returns until when the records of other nodes are waited for that decide what failed
// checks of a kind, Check or CheckEnvironment, are evidence of, and of which nodes; zero if that is
// known.
func unspoken(kind Kind, failures []Observed, passed []int, size int) (until time.Time) {
	wait := checkedTime
	if kind == CheckEnvironment {
		wait = EvidenceTime
	}
	spoke := make(map[int]bool)
	for _, rank := range passed {
		spoke[rank] = true
	}
	for _, o := range failures {
		spoke[o.Rank] = true
		switch {
		case Kind(o.Kind) != kind:
		case kind == CheckEnvironment && othersPass(o, environment(o.FailedRecord), failures, passed):
			return time.Time{}
		case until.IsZero():
			until = o.At.Add(wait)
		}
	}
	if len(spoke) >= size {
		return time.Time{}
	}
	return until
}
