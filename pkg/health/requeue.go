package health

import "fmt"

// RequeuePolicy has the facts besides the failure that decide whether the job is requeued.
type RequeuePolicy struct {
	Wanted   bool   // the user wants requeues
	Most     int    // maximum number of requeues
	Restarts int    // number of restarts so far, for any reason
	Unable   string // why it cannot be requeued, as a sentence; empty: it can
	Told     bool   // this daemon was asked to end: the sender decides what comes next
}

// RequeueDecision is the decision whether a failed job is requeued.
type RequeueDecision struct {
	Requeue bool
	Why     string // in words; empty if the user does not want requeues
	// Outcome is the failure's, or GaveUp's if the job should be requeued but has reached the maximum.
	Outcome Outcome
}

// DecideRequeue decides whether a job that failed with this outcome is requeued.
func DecideRequeue(outcome Outcome, policy RequeuePolicy) RequeueDecision {
	again := RequeueDecision{Outcome: outcome}
	what := fmt.Sprintf("%s (%d)", outcome.Word, outcome.Code)
	switch {
	case !policy.Wanted:
	case policy.Told:
		again.Why = what + ": the job was told to end, and who told it decides"
	case outcome.Requeue != RequeueYes && outcome.Requeue != RequeueElsewhere:
		again.Why = what + " is nothing that another try would mend"
	case policy.Unable != "":
		again.Why = what + " would deserve another try, but " + policy.Unable
	case policy.Restarts >= policy.Most:
		again.Outcome = OutcomeOf(GaveUp)
		again.Why = fmt.Sprintf("%s once more, and the job has been started anew %d times of at most %d", what, policy.Restarts, policy.Most)
	default:
		again.Requeue = true
		again.Why = fmt.Sprintf("%s: the job is started anew for the %s time of at most %d", what, ordinal(policy.Restarts+1), policy.Most)
	}
	return again
}

// ordinal formats 1st, 2nd, 3rd, 4th, 11th, 21st.
func ordinal(n int) string {
	ending := "th"
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			ending = "st"
		case 2:
			ending = "nd"
		case 3:
			ending = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, ending)
}
