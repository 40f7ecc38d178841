package health

import "fmt"

// RequeuePolicy is what decides, besides the failure, whether the same job is
// tried again.
type RequeuePolicy struct {
	Wanted   bool   // the user asks for it at all
	Most     int    // how often it may be
	Restarts int    // how often it has been started anew, by whomever
	Unable   string // why nobody here could, as a sentence; empty: somebody can
	Told     bool   // this daemon was told to end: who did that decides what comes next
}

// RequeueDecision is whether a job that has failed is to be tried again.
type RequeueDecision struct {
	Requeue bool
	Why     string // in words; empty where nobody has asked for it
	// Outcome is the failure's, or GaveUp's where the job would deserve another
	// try and has had all that it may have.
	Outcome Outcome
}

// DecideRequeue decides whether a job that failed with this outcome is to be
// tried again.
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

// ordinal writes 1st, 2nd, 3rd, 4th, 11th, 21st.
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
