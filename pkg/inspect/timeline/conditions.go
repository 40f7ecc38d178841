package timeline

import (
	"fmt"
	"time"
)

// Condition is a statement about a run that is true or false, for programs that wait for it. The
// types, their order and their meanings are those of a job of Kubeflow's mpi-operator
// (pkg/apis/kubeflow/v2beta1/types.go).
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason"`  // one word for programs; empty if Status is false
	Message string `json:"message"` // description for people
	// when it became true, by the reporting node's clock; nil if unknown
	Since *time.Time `json:"since,omitempty"`
}

// The types of conditions, in the order in which a Status lists them.
const (
	ConditionCreated    = "Created"    // a run directory exists
	ConditionRunning    = "Running"    // the gate is open, and no end has been published
	ConditionRestarting = "Restarting" // this attempt has failed, and another one follows
	ConditionSucceeded  = "Succeeded"  // ended with code 0
	ConditionFailed     = "Failed"     // ended with another code, and no attempt follows
)

// listConditions returns all conditions, whether they are true or false.
func (v *statusView) listConditions(s Status) []Condition {
	all := []Condition{
		metCondition(ConditionCreated, "run-made", "the run directory exists", v.start),
		{Type: ConditionRunning}, {Type: ConditionRestarting}, {Type: ConditionSucceeded}, {Type: ConditionFailed},
	}
	// At most one of the conditions after the first is true, depending on the state.
	verdict := v.run.Verdict()
	switch {
	case s.State == StateUp:
		reason, message := "gate-open", fmt.Sprintf("%d of %d nodes are ready, and the gate is open", s.Ready, s.Nodes)
		if s.DriverCode != nil {
			reason = "look"
			message = fmt.Sprintf("the driver has ended with code %d, and everything else stays up for inspection",
				*s.DriverCode)
		}
		all[1] = metCondition(ConditionRunning, reason, message, v.run.Control.Go.At)
	case s.State == StateUnknown:
	case s.State == StateBringingUp:
		all[1].Message = "the gate is not open yet"
		if len(s.Waits) > 0 {
			all[1].Message += ": " + s.Waits[0].What
			if s.Waits[0].Step != stepHead && s.Waits[0].Nodes != "" {
				all[1].Message += ": " + s.Waits[0].Nodes
			}
		}
	case verdict == nil: // over, but its result cannot be read
	case verdict.NextAttempt > 0:
		message := fmt.Sprintf("attempt %d follows: %s", verdict.NextAttempt, s.End.Why)
		all[2] = metCondition(ConditionRestarting, s.End.Word, message, verdict.WrittenAt)
	case s.State == StateEnding:
	case verdict.Code == 0:
		all[3] = metCondition(ConditionSucceeded, s.End.Word, s.End.Why, verdict.WrittenAt)
	default:
		message := fmt.Sprintf("code %d: %s", s.End.Code, s.End.Why)
		all[4] = metCondition(ConditionFailed, s.End.Word, message, verdict.WrittenAt)
	}
	return all
}

func metCondition(typ, reason, message string, since time.Time) Condition {
	c := Condition{Type: typ, Status: true, Reason: reason, Message: message}
	if !since.IsZero() {
		c.Since = &since
	}
	return c
}
