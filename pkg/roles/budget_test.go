package roles_test

import (
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestBudgetWindow verifies that a restart counts for the whole window, and that the pause begins
// anew only after a whole window without an exit: with none if the instance had been ready for a while.
func TestBudgetWindow(t *testing.T) {
	const window = time.Minute
	for name, exits := range map[string][]struct {
		at     time.Duration // since the first exit
		upFor  time.Duration
		action roles.Action
		pause  time.Duration
	}{
		"restarts": {
			{0, 0, roles.ActionRestart, time.Second},
			{time.Second, 0, roles.ActionRestart, 2 * time.Second},
			{window - time.Second, 0, roles.ActionLose, 0},
			{window, 0, roles.ActionLose, 0},
			{window + time.Second/2, 0, roles.ActionRestart, 4 * time.Second}, // the first one is forgotten
			{window + time.Second, 0, roles.ActionLose, 0},
		},
		"pauses": {
			{0, 0, roles.ActionRestart, time.Second},
			{window, 0, roles.ActionRestart, 2 * time.Second},
			{2*window + time.Second, 0, roles.ActionRestart, time.Second},
		},
		"ready for a while": {
			{0, 10 * time.Second, roles.ActionRestart, 0},
			{20 * time.Second, 20 * time.Second, roles.ActionRestart, time.Second},
			{90 * time.Second, 9 * time.Second, roles.ActionRestart, time.Second},
		},
	} {
		d := roles.Definition{Restarts: roles.RestartPolicy{
			Max: 2, Window: window, MinBackoff: time.Second, MaxBackoff: 30 * time.Second,
		}}
		begin, budget := time.Now(), new(roles.RestartBudget)
		for _, exit := range exits {
			action, pause := d.Decide(roles.Exit{Code: 1, WasReady: true, UpFor: exit.upFor}, budget,
				begin.Add(exit.at))
			if action != exit.action || pause != exit.pause {
				t.Errorf("%s: after %s: action %d, pause %s, want %d, %s",
					name, exit.at, action, pause, exit.action, exit.pause)
			}
		}
	}
}
