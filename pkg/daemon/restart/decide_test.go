package restart_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestRequeueNeedsLauncher verifies that no requeue is announced by a launcher that has none.
func TestRequeueNeedsLauncher(t *testing.T) {
	cfg := deps.Config{Config: config.Config{
		Identity: launcher.Identity{Launcher: launcher.LauncherLocal, Size: 1},
		After:    config.PostRun{Requeue: config.RequeueConfig{OnFailure: true, Most: 3}},
	}}
	cause := health.NewFailure(health.PeerLost, "a node is lost")
	end := restart.Decide(&cfg, &lifecycle.Outcome{Cause: &cause.Failure}, false)
	if end.Requeue == nil || end.Requeue.Wanted || end.Requeue.Reason == "" {
		t.Errorf("the decision is %+v", end.Requeue)
	}
}

// TestDriverWithoutProgress verifies that a driver that fails again and again without a step more
// is not started again if a restart needs progress.
func TestDriverWithoutProgress(t *testing.T) {
	cfg := deps.Config{Config: config.Config{
		Identity: launcher.Identity{Size: 1, Attempt: 1},
		After: config.PostRun{Restarts: 9, Rules: config.RestartRules{
			On: config.RestartOnAny, NeedsProgress: true,
		}},
	}}
	for _, gained := range []bool{false, true} {
		failed := &lifecycle.Outcome{Orderly: true, Name: health.DriverOutcomeName, Code: 3}
		err := restart.ReplaceDriverEnd(&cfg, failed, func() *record.Progress {
			return &record.Progress{MaxStep: 7, Gained: gained}
		})
		if _, restarts := errors.AsType[*health.Failure](err); restarts != gained {
			t.Errorf("steps were gained: %t, got %v", gained, err)
		}
	}
}

// TestSuccessionHasHistory verifies that the result of an attempt has the restarts before it if
// there may be any, for the case that the job is requeued.
func TestSuccessionHasHistory(t *testing.T) {
	for _, restarts := range []int{0, 1} {
		cfg := deps.Config{Config: config.Config{After: config.PostRun{Restarts: restarts}}}
		cfg.Previous.History.Count = 5
		s := restart.Succession(&cfg, new(lifecycle.Outcome))
		if (s.History != nil) != (restarts > 0) || s.History != nil && s.History.Count != 5 {
			t.Errorf("with %d restarts the history is %+v", restarts, s.History)
		}
	}
}

// TestStepKnowsHosts verifies that a daemon of a further step knows the hosts of the run that it
// joins.
func TestStepKnowsHosts(t *testing.T) {
	access := signal.Access{NoHints: true, Meter: new(signal.CallMeter)}
	logs := t.TempDir()
	place := signal.Location{LogDir: logs, Run: "17.0", Key: "k", Size: 3, Host: "a", Access: access}
	job := record.Job{Hosts: "a,b,c", Steps: []string{"judge"}}
	if _, err := signal.CreateRun(t.Context(), place, job); err != nil {
		t.Fatal(err)
	}
	cfg := deps.Config{
		Config: config.Config{
			Identity: launcher.Identity{
				Job: "17", Step: "1", Host: "b", NodeIndex: 1, Size: 2, LocalSize: 2,
			},
			LogDir: logs, Times: config.DefaultTimeouts(),
		},
		Set: deps.Set{Access: access},
	}
	cfg.Roles.Step, cfg.Streams.Err = "judge", os.Stderr
	var joined launcher.Identity
	code := restart.Run(t.Context(), cfg, roles.RoleWorker,
		func(_ context.Context, cfg deps.Config, _ roles.DaemonRole) lifecycle.Exit {
			joined = cfg.Identity
			return lifecycle.Exit{Code: 3}
		})
	if code != 3 || joined.Size != 3 || !slices.Equal(joined.Hosts, []string{"a", "b", "c"}) {
		t.Errorf("got %d as %+v", code, joined)
	}
}
