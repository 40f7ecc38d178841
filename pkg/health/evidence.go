package health

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// EvidenceTimeout is the maximum time for which a failed check of the environment waits for other
// nodes' records, which show whether the node or the launch has caused it. The wait ends with the
// first node that passes, and when all nodes have reported.
const EvidenceTimeout = 30 * time.Second

// checkEvidenceTimeout is the maximum time for which a failed check that counts against its node
// waits for failed checks of other nodes, so that a restarted job avoids all of them.
const checkEvidenceTimeout = time.Second

// ExtraOutcomeWait returns the additional time for which a node that has reported a failure of this
// kind waits for the head to publish the outcome.
func ExtraOutcomeWait(kind Kind) time.Duration {
	if kind == CheckEnvironment {
		return EvidenceTimeout
	}
	return 0
}

// finding has the fields of a finding of pkg/check that matter here.
type finding struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict"`
	Class   string `json:"class"`
}

func parseFindings(f record.Failure) []finding {
	var report struct {
		Findings []finding `json:"findings"`
	}
	if json.Unmarshal(f.Report, &report) != nil {
		return nil
	}
	return report.Findings
}

// failedEnvironmentChecks returns the ids of the environment checks that a node failed. A
// CheckEnvironment failure without a report has one empty id.
func failedEnvironmentChecks(f record.Failure) (ids []string) {
	all := parseFindings(f)
	for _, found := range all {
		if found.Verdict == "FAIL" && found.Class == "environment" {
			ids = append(ids, found.ID)
		}
	}
	if len(all) == 0 && f.Kind == CheckEnvironment {
		ids = append(ids, "")
	}
	return ids
}

// hasPassedCheck reports whether a node that has failed otherwise has passed the check with this
// id.
func hasPassedCheck(f record.Failure, id string) bool {
	all := parseFindings(f)
	of := func(found finding) bool { return found.ID == id }
	return slices.ContainsFunc(all, of) &&
		!slices.ContainsFunc(all, func(found finding) bool { return of(found) && found.Verdict == "FAIL" })
}

// PassedNodes returns the nodes whose records show that they have passed their checks: nodes in the
// state checked, and nodes whose service is up, which requires that temporary files can be created.
func PassedNodes(l signal.Listing) []int {
	return slices.Concat(l.NodesIn(record.StateChecked), l.NodesIn(record.StateServiceUp))
}

// ClassifyEnvironmentFailures returns a copy of the failures in which each CheckEnvironment is
// replaced by CheckFailed or CheckUser. It becomes CheckFailed, which counts against the node, if
// another node has passed the same check, according to passed or to the report of another failure.
// Otherwise it becomes CheckUser, also if the run has a single node. Causes of earlier attempts
// have precedence: if the same check failed on another node before, the launch is at fault. Weigh
// calls earlier, which returns them, only if they matter. Other failures do not change.
func ClassifyEnvironmentFailures(failures []ObservedFailure, passed []int,
	earlier func() []record.Failure) []ObservedFailure {
	weighed := slices.Clone(failures)
	for i, o := range failures {
		if o.Kind != CheckEnvironment {
			continue
		}
		weighed[i].Kind = CheckUser
		switch ids := failedEnvironmentChecks(o.Failure); {
		case !otherNodePassed(o, ids, failures, passed):
			weighed[i].Message += "; no other node is known to have passed this check, so the " +
				"launch is at fault, not the node"
		case slices.ContainsFunc(earlier(),
			func(before record.Failure) bool { return isRepeatElsewhere(before, o.Host, ids) }):
			weighed[i].Message += "; an earlier attempt failed the same check on another node, so " +
				"the launch is at fault, not the node"
		default:
			weighed[i].Kind = CheckFailed
		}
	}
	return weighed
}

// otherNodePassed reports whether another node has passed one of the checks that this one failed.
func otherNodePassed(o ObservedFailure, ids []string, failures []ObservedFailure, passed []int) bool {
	if slices.ContainsFunc(passed, func(node int) bool { return node != o.NodeIndex }) {
		return true
	}
	return slices.ContainsFunc(failures, func(other ObservedFailure) bool {
		return other.NodeIndex != o.NodeIndex &&
			slices.ContainsFunc(ids, func(id string) bool { return hasPassedCheck(other.Failure, id) })
	})
}

// isRepeatElsewhere reports whether an earlier attempt ended because of one of these checks on
// another host.
func isRepeatElsewhere(before record.Failure, host string, ids []string) bool {
	return before.Host != host && slices.ContainsFunc(failedEnvironmentChecks(before),
		func(id string) bool { return slices.Contains(ids, id) })
}

// evidenceDeadline returns until when the verdict must wait for records of other nodes, which
// decide whether failed checks of this kind (CheckFailed or CheckEnvironment) count against their
// nodes. It returns the zero time if there is nothing to wait for.
func evidenceDeadline(kind Kind, failures []ObservedFailure, passed []int, size int) (until time.Time) {
	wait := checkEvidenceTimeout
	if kind == CheckEnvironment {
		wait = EvidenceTimeout
	}
	spoke := make(map[int]bool)
	for _, node := range passed {
		spoke[node] = true
	}
	for _, o := range failures {
		spoke[o.NodeIndex] = true
		switch {
		case o.Kind != kind:
		case kind == CheckEnvironment && otherNodePassed(o, failedEnvironmentChecks(o.Failure), failures, passed):
			return time.Time{}
		case until.IsZero():
			until = o.ObservedAt.Add(wait)
		}
	}
	if len(spoke) >= size {
		return time.Time{}
	}
	return until
}
