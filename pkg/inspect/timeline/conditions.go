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

// listConditions returns all conditions, whether they are true or false. At most one of them is true
// after the first.
func (v *statusView) listConditions(s Status) []Condition {
	all := []Condition{
		metCondition(ConditionCreated, "run-made", "the run directory exists", v.start),
		{Type: ConditionRunning}, {Type: ConditionRestarting}, {Type: ConditionSucceeded}, {Type: ConditionFailed},
	}
	verdict := v.run.Verdict()
	var met Condition
	switch {
	case s.State == StateUp && s.DriverCode != nil:
		met = metCondition(ConditionRunning, "look", fmt.Sprintf("the driver has ended with code %d, and everything "+
			"else stays up for inspection", *s.DriverCode), v.run.Control.Go.At)
	case s.State == StateUp:
		met = metCondition(ConditionRunning, "gate-open", fmt.Sprintf("%d of %d nodes are ready, and the gate is open",
			s.Ready, s.Nodes), v.run.Control.Go.At)
	case s.State == StateBringingUp:
		met = Condition{Type: ConditionRunning, Message: "the gate is not open yet"}
		if len(s.Waits) > 0 {
			met.Message += ": " + s.Waits[0].What
			if s.Waits[0].Step != stepHead && s.Waits[0].Nodes != "" {
				met.Message += ": " + s.Waits[0].Nodes
			}
		}
	case verdict == nil: // unknown, or over without a result that can be read
	case verdict.NextAttempt > 0:
		message := fmt.Sprintf("attempt %d follows: %s", verdict.NextAttempt, s.End.Why)
		met = metCondition(ConditionRestarting, s.End.Word, message, verdict.WrittenAt)
	case s.State == StateEnding:
	case verdict.Code == 0:
		met = metCondition(ConditionSucceeded, s.End.Word, s.End.Why, verdict.WrittenAt)
	default:
		message := fmt.Sprintf("code %d: %s", s.End.Code, s.End.Why)
		met = metCondition(ConditionFailed, s.End.Word, message, verdict.WrittenAt)
	}
	for i := range all {
		if all[i].Type == met.Type {
			all[i] = met
		}
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
