package health

import "fmt"

// RequeuePolicy has the facts besides the failure that decide whether the job is requeued.
type RequeuePolicy struct {
	Enabled      bool   // the user wants requeues
	MaxRequeues  int    // maximum number of requeues
	Restarts     int    // number of restarts so far, for any reason
	Obstacle     string // why it cannot be requeued, as a sentence; empty: it can
	EndRequested bool   // this daemon was asked to end: the sender decides what comes next
}

// RequeueDecision is the decision whether a failed job is requeued.
type RequeueDecision struct {
	Requeue bool
	Reason  string // in words; empty if the user does not want requeues
	// Outcome is the failure's, or RequeuesExhausted's if the job should be requeued but has reached
	// the maximum.
	Outcome Outcome
}

// DecideRequeue decides whether a job that failed with this outcome is requeued.
func DecideRequeue(outcome Outcome, policy RequeuePolicy) RequeueDecision {
	again := RequeueDecision{Outcome: outcome}
	what := fmt.Sprintf("%s (%d)", outcome.Name, outcome.Code)
	switch {
	case !policy.Enabled:
	case policy.EndRequested:
		again.Reason = what + ": the job was told to end from outside"
	case outcome.Requeue != RequeueYes && outcome.Requeue != RequeueElsewhere:
		again.Reason = what + " cannot be fixed by another try"
	case policy.Obstacle != "":
		again.Reason = what + " justifies another try, but " + policy.Obstacle
	case policy.Restarts >= policy.MaxRequeues:
		again.Outcome = OutcomeOfKind(RequeuesExhausted)
		again.Reason = fmt.Sprintf("%s again, and the job has been requeued %d times of at most %d", what, policy.Restarts, policy.MaxRequeues)
	default:
		again.Requeue = true
		again.Reason = fmt.Sprintf("%s: the job is requeued for the %s time of at most %d", what, formatOrdinal(policy.Restarts+1), policy.MaxRequeues)
	}
	return again
}

// formatOrdinal formats 1st, 2nd, 3rd, 4th, 11th, 21st.
func formatOrdinal(n int) string {
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
