package restart_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
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

// TestDecide verifies what the facts about the end of an attempt change in the decision on another
// one.
func TestDecide(t *testing.T) {
	failed := func(kind health.Kind) lifecycle.Outcome {
		return lifecycle.Outcome{Cause: &record.Failure{Kind: kind}}
	}
	open, stuck := failed(health.ServiceDied), failed(health.RankFailed)
	open.GateOpenTime, stuck.Progress = time.Second, &record.Progress{MaxStep: 7}
	for _, tc := range []struct {
		name         string
		end          lifecycle.Outcome
		endRequested bool
		next         int
	}{
		{"a service that has started", open, false, 2},
		{"a service that does not start", failed(health.ServiceDied), false, 0},
		{"a rank", failed(health.RankFailed), false, 2},
		{"a rank of a job that was told to end", failed(health.RankFailed), true, 0},
		{"a rank without a step more", stuck, false, 0},
		{"an orderly end", lifecycle.Outcome{Orderly: true}, false, 0},
	} {
		cfg := deps.Config{Config: config.Config{
			Identity: launcher.Identity{Size: 1, Attempt: 1},
			After: config.PostRun{Restarts: 9, Rules: config.RestartRules{
				On: config.RestartOnAny, NeedsProgress: true,
			}},
		}}
		if got := restart.Decide(&cfg, &tc.end, tc.endRequested).NextAttempt; got.Number != tc.next {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// TestDriverOnUnfitNodes verifies that a driver is not started again if too few nodes are left for
// it.
func TestDriverOnUnfitNodes(t *testing.T) {
	for unfit, restarts := range []bool{true, true, false} {
		cfg := deps.Config{Config: config.Config{
			Identity: launcher.Identity{Size: 4},
			Team:     membership.NodeRange{Min: 3, Max: 4},
			After: config.PostRun{
				Restarts: 9, Rules: config.RestartRules{On: config.RestartOnAny},
			},
		}}
		for node := range unfit {
			cfg.Previous.UnfitNodes = append(cfg.Previous.UnfitNodes, record.DroppedNode{NodeIndex: node + 1})
		}
		failed := &lifecycle.Outcome{Orderly: true, Name: health.DriverOutcomeName, Code: 3}
		err := restart.ReplaceDriverEnd(&cfg, failed, func() *record.Progress { return nil })
		if _, got := errors.AsType[*health.Failure](err); got != restarts {
			t.Errorf("with %d unfit nodes got %v", unfit, err)
		}
	}
}

// launcherRequests records what is requested from a launcher, which refuses the given requests.
type launcherRequests struct {
	made                      []string
	refusesStart, refusesHint bool
}

func (r *launcherRequests) RequeueJob(context.Context) error {
	r.made = append(r.made, "start")
	if r.refusesStart {
		return errors.New("the launcher refuses")
	}
	return nil
}

func (r *launcherRequests) ExcludeHosts(_ context.Context, hosts []string) error {
	r.made = append(r.made, hosts...)
	if r.refusesHint {
		return errors.New("the launcher refuses")
	}
	return nil
}

// TestCarryOut verifies what is requested from the launcher after each decision, and what is
// printed.
func TestCarryOut(t *testing.T) {
	wanted := &record.RequeueDecision{Wanted: true, Reason: "it is requeued"}
	bad := []string{"n1"}
	for _, tc := range []struct {
		name         string
		end          lifecycle.Outcome
		endRequested bool
		by           launcherRequests // made is what is wanted
		prints       []string         // parts of each line
	}{
		{"no restarts", lifecycle.Outcome{}, false, launcherRequests{}, nil},
		{"another attempt", lifecycle.Outcome{
			NextAttempt: lifecycle.NextAttempt{Number: 2, Reason: "attempt 3"}, Requeue: wanted,
		}, false, launcherRequests{}, []string{"attempt 3"}},
		{"no further attempt, but a requeue", lifecycle.Outcome{
			NextAttempt: lifecycle.NextAttempt{Reason: "the last"}, Requeue: wanted,
		}, false, launcherRequests{made: []string{"start"}}, []string{"the last", "it is requeued"}},
		{"no requeue", lifecycle.Outcome{
			Requeue: &record.RequeueDecision{Reason: "no batch job"},
		}, false, launcherRequests{}, []string{"no batch job"}},
		{
			"it was told to end", lifecycle.Outcome{Requeue: wanted},
			true, launcherRequests{}, []string{"told to end"},
		},
		{
			"a bad node", lifecycle.Outcome{Requeue: wanted, BadNodes: bad},
			false, launcherRequests{made: []string{"start", "n1"}}, []string{"it is requeued"},
		},
		{
			"the launcher refuses", lifecycle.Outcome{Requeue: wanted, BadNodes: bad},
			false, launcherRequests{made: []string{"start"}, refusesStart: true},
			[]string{"cannot be requeued"},
		},
		{
			"the launcher refuses a bad node", lifecycle.Outcome{Requeue: wanted, BadNodes: bad},
			false, launcherRequests{made: []string{"start", "n1"}, refusesHint: true},
			[]string{"it is requeued", "bad node"},
		},
	} {
		by := tc.by
		by.made = nil
		var printed []string
		restart.CarryOut(t.Context(), &tc.end, &by, func() bool { return tc.endRequested },
			func(message string, _ ...zap.Field) { printed = append(printed, message) })
		if !slices.Equal(by.made, tc.by.made) || !slices.EqualFunc(printed, tc.prints, strings.Contains) {
			t.Errorf("%s: requested %q, printed %q", tc.name, by.made, printed)
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
