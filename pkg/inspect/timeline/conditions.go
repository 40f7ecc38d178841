package timeline

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/membership/gate"
)

// Condition is whether one thing is so of a run, for programs that wait for it. The types, their
// order and what each of them says are those of a job of Kubeflow's mpi-operator
// (pkg/apis/kubeflow/v2beta1/types.go).
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason"`  // a word for programs; empty where it is not so
	Message string `json:"message"` // the same for people
	// it is so, by the clock of the node that says it; nil where that is not known
	Since *time.Time `json:"since,omitempty"`
}

// The types of conditions.
const (
	Created    = "Created"    // there is a run directory
	Running    = "Running"    // the gate is open, and no end is known
	Restarting = "Restarting" // this attempt has failed, and another follows
	Succeeded  = "Succeeded"  // it has ended with 0
	Failed     = "Failed"     // it has ended otherwise, and nothing follows
)

// conditions are all of them, whether they are so or not.
func (v *view) conditions(s Status) []Condition {
	all := []Condition{
		so(Created, "run-made", "the run directory is there", v.start),
		{Type: Running}, {Type: Restarting}, {Type: Succeeded}, {Type: Failed},
	}
	verdict := v.run.Verdict()
	switch {
	case s.State == IsUp:
		all[1] = so(Running, "gate-open", fmt.Sprintf("%d of %d nodes are ready, and the gate is open", s.Ready, s.Nodes), v.run.Control.Go.At)
		if s.DriverCode != nil {
			all[1].Reason, all[1].Message = "look", fmt.Sprintf("the driver has ended with code %d, and all else stays for a look", *s.DriverCode)
		}
	case s.State == BringingUp:
		all[1].Message = "the gate is not open yet"
		if len(s.Waits) > 0 {
			all[1].Message += ": " + s.Waits[0].What
			if s.Waits[0].Step != gate.StepHead && s.Waits[0].Nodes != "" {
				all[1].Message += ": " + s.Waits[0].Nodes
			}
		}
	case verdict == nil: // over, and its result can't be read
	case verdict.NextAttempt > 0:
		all[2] = so(Restarting, s.End.Word, fmt.Sprintf("attempt %d follows: %s", verdict.NextAttempt, s.End.Why), verdict.WrittenAt)
	case s.State == Ending:
	case verdict.Code == 0:
		all[3] = so(Succeeded, s.End.Word, s.End.Why, verdict.WrittenAt)
	default:
		all[4] = so(Failed, s.End.Word, fmt.Sprintf("code %d: %s", s.End.Code, s.End.Why), verdict.WrittenAt)
	}
	return all
}

// so is a condition that is met.
func so(typ, reason, message string, since time.Time) Condition {
	c := Condition{Type: typ, Status: true, Reason: reason, Message: message}
	if !since.IsZero() {
		c.Since = &since
	}
	return c
}
