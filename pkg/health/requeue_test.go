package health

import (
	"strings"
	"testing"
)

func TestDecideRequeue(t *testing.T) {
	asked := RequeuePolicy{Enabled: true, MaxRequeues: 3}
	with := func(change func(*RequeuePolicy)) RequeuePolicy {
		policy := asked
		change(&policy)
		return policy
	}
	lost, check, service := OutcomeOfKind(DaemonDied), OutcomeOfKind(CheckFailed), OutcomeOfKind(ServiceDied)
	for _, tc := range []struct {
		name    string
		outcome Outcome
		policy  RequeuePolicy
		requeue bool
		code    int
		why     string
	}{
		{"nobody asks for it", lost, RequeuePolicy{MaxRequeues: 3}, false, 76, ""},
		{"nobody asks for it, and it has been often", lost, RequeuePolicy{MaxRequeues: 3, Restarts: 9}, false, 76, ""},
		{"a peer was lost", lost, asked, true, 76, "peer-lost (76): the job is requeued for the 1st time of at most 3"},
		{"a node failed its check", check, asked, true, 75, "check (75): the job is requeued"},
		{"for the last time", lost, with(func(p *RequeuePolicy) { p.Restarts = 2 }), true, 76, "for the 3rd time of at most 3"},
		{"once too often", lost, with(func(p *RequeuePolicy) { p.Restarts = 3 }), false, 69, "peer-lost (76) again, and the job has been requeued 3 times of at most 3"},
		{"a check once too often", check, with(func(p *RequeuePolicy) { p.Restarts = 4 }), false, 69, "4 times of at most 3"},
		{"never", lost, with(func(p *RequeuePolicy) { p.MaxRequeues = 0 }), false, 69, "0 times of at most 0"},
		{"a service died", service, asked, false, 77, "service (77) cannot be fixed by another try"},
		{"a service died once too often", service, with(func(p *RequeuePolicy) { p.Restarts = 3 }), false, 77, "cannot be fixed by"},
		{"the driver's own code", Outcome{Code: 76, Name: DriverOutcomeName}, asked, false, 76, "driver (76) cannot be fixed by"},
		{"nobody can", lost, with(func(p *RequeuePolicy) { p.Obstacle = "it is no batch job of Slurm's" }), false, 76,
			"peer-lost (76) justifies another try, but it is no batch job of Slurm's"},
		{"nobody can, and it has been often", lost, with(func(p *RequeuePolicy) { p.Obstacle, p.Restarts = "no", 3 }), false, 76, "but no"},
		{"cancelled, and a peer went first", lost, with(func(p *RequeuePolicy) { p.EndRequested = true }), false, 76, "told to end from outside"},
		{"cancelled at the last try", lost, with(func(p *RequeuePolicy) { p.EndRequested, p.Restarts = true, 3 }), false, 76, "told to end from outside"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := DecideRequeue(tc.outcome, tc.policy)
			if got.Requeue != tc.requeue || got.Outcome.Code != tc.code || !strings.Contains(got.Reason, tc.why) || (tc.why == "") != (got.Reason == "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestDecideRequeueByTheTable verifies that only the codes marked in the table are retried, and
// that the code of a job that has given up is not among them.
func TestDecideRequeueByTheTable(t *testing.T) {
	for _, outcome := range OutcomeTable() {
		got := DecideRequeue(outcome, RequeuePolicy{Enabled: true, MaxRequeues: 1})
		if want := outcome.Code == 75 || outcome.Code == 76; got.Requeue != want || got.Outcome != outcome {
			t.Errorf("%+v: %+v", outcome, got)
		}
		if got := DecideRequeue(outcome, RequeuePolicy{Enabled: true, MaxRequeues: 1, Restarts: 1}); got.Requeue {
			t.Errorf("%+v is tried once more than it may be", outcome)
		}
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 111: "111th"} {
		if got := formatOrdinal(n); got != want {
			t.Errorf("ordinal(%d) = %q", n, got)
		}
	}
}
