package health

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// EvidenceTime is the maximum time for which a failed check of the environment waits for other
// nodes' records, which show whether the node or the launch has caused it. The wait ends with the
// first node that passes, and when all nodes have reported.
const EvidenceTime = 30 * time.Second

// checkedTime is the maximum time for which a failed check that counts against its node waits for
// failed checks of other nodes, so that a restarted job avoids all of them.
const checkedTime = time.Second

// Patience returns the additional time for which a node that has reported a failure of this kind
// waits for the head to publish the outcome.
func Patience(kind Kind) time.Duration {
	if kind == CheckEnvironment {
		return EvidenceTime
	}
	return 0
}

// finding has the fields of a finding of pkg/check that matter here.
type finding struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict"`
	Class   string `json:"class"`
}

// findings returns the findings of a failed check, or nil if the record has none.
func findings(f signal.FailedRecord) []finding {
	var report struct {
		Findings []finding `json:"findings"`
	}
	if len(f.Report) == 0 || json.Unmarshal(f.Report, &report) != nil {
		return nil
	}
	return report.Findings
}

// environment returns the ids of the environment checks that a node failed. A CheckEnvironment
// failure without a report has one empty id.
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

// passes reports whether a node that has failed otherwise has passed the check with this id.
func passes(f signal.FailedRecord, id string) bool {
	all := findings(f)
	of := func(found finding) bool { return found.ID == id }
	return slices.ContainsFunc(all, of) && !slices.ContainsFunc(all, func(found finding) bool { return of(found) && found.Verdict == "FAIL" })
}

// Passed returns the nodes whose records show that they have passed their checks: nodes in the
// state checked, and nodes whose service is up, which requires that temporary files can be created.
func Passed(l signal.Listing) []int {
	return slices.Concat(l.Ranks(signal.Checked), l.Ranks(signal.Up))
}

// Weigh returns a copy of the failures in which each CheckEnvironment is replaced by Check or
// CheckUser. It becomes Check, which counts against the node, if another node has passed the same
// check, according to passed or to the report of another failure. Otherwise it becomes CheckUser,
// also if the run has a single node. Causes of earlier attempts have precedence: if the same check
// failed on another node before, the launch is at fault. Weigh calls earlier, which returns them,
// only if they matter. Other failures do not change.
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

// repeats reports whether an earlier attempt ended because of one of these checks on another host.
func repeats(before signal.FailedRecord, host string, ids []string) bool {
	return before.Host != host && slices.ContainsFunc(environment(before), func(id string) bool { return slices.Contains(ids, id) })
}

// unspoken returns until when the verdict must wait for records of other nodes, which decide
// whether failed checks of this kind (Check or CheckEnvironment) count against their nodes. It
// returns the zero time if there is nothing to wait for.
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
