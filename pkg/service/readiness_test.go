package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/service"
)

// TestReadinessOfSeveralProcesses checks that a node with several processes of an instance is ready as
// long as all of them are, that its changes have one sequence of numbers, and that it is withdrawn once.
func TestReadinessOfSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := service.NewReadiness(0)
		want := func(what string, got, change int) {
			t.Helper()
			if got != change {
				t.Errorf("%s: change %d, want %d", what, got, change)
			}
			time.Sleep(5 * time.Second)
		}
		want("too early", all.Update(0, false), 0)
		want("the first is unready", all.Update(0, false), 1)
		want("the second, too", all.Update(1, false), 0)
		want("the first is ready", all.Update(0, true), 0)
		want("both are", all.Update(1, true), 2)
		want("the second is unready again", all.Update(1, false), 3)
		all.Forget(1)
		want("the second has ended", all.Update(0, true), 4)
		want("it is withdrawn", all.Withdraw(), 5)
		want("it does not become ready again", all.Update(0, true), 0)
		want("it is withdrawn already", all.Withdraw(), 0)
	})
}
