package restart_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
			After:    config.PostRun{Restarts: 9, Rules: config.RestartRules{On: config.RestartOnAny}},
		}}
		if got := restart.Decide(&cfg, &tc.end, tc.endRequested).NextAttempt; got.Number != tc.next {
			t.Errorf("%s: %+v", tc.name, got)
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
	refused := &record.RequeueDecision{Reason: "no batch job"}
	next, last := lifecycle.NextAttempt{Number: 2, Reason: "attempt 3"}, lifecycle.NextAttempt{Reason: "the last"}
	bad := lifecycle.Outcome{Requeue: wanted, BadNodes: []string{"n1"}}
	start, both := launcherRequests{made: []string{"start"}}, launcherRequests{made: []string{"start", "n1"}}
	noStart, noHint := start, both
	noStart.refusesStart, noHint.refusesHint = true, true
	for _, tc := range []struct {
		name         string
		end          lifecycle.Outcome
		endRequested bool
		by           launcherRequests // made is what is wanted
		prints       []string         // parts of each line
	}{
		{"no restarts", lifecycle.Outcome{}, false, launcherRequests{}, nil},
		{"another attempt", lifecycle.Outcome{NextAttempt: next, Requeue: wanted}, false, launcherRequests{},
			[]string{"attempt 3"}},
		{"no further attempt, but a requeue", lifecycle.Outcome{NextAttempt: last, Requeue: wanted}, false, start,
			[]string{"the last", "it is requeued"}},
		{"no requeue", lifecycle.Outcome{Requeue: refused}, false, launcherRequests{}, []string{"no batch job"}},
		{"it was told to end", lifecycle.Outcome{Requeue: wanted}, true, launcherRequests{}, []string{"told to end"}},
		{"a bad node", bad, false, both, []string{"it is requeued"}},
		{"the launcher refuses", bad, false, noStart, []string{"cannot be requeued"}},
		{"the launcher refuses a bad node", bad, false, noHint, []string{"it is requeued", "bad node"}},
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

// stepConfig returns the configuration of a daemon of a step, and where the run of the job is.
func stepConfig(t *testing.T, id launcher.Identity, step, head string, size int) (deps.Config, signal.Location) {
	access := signal.Access{NoHints: true, Meter: new(signal.CallMeter)}
	id.Job, id.Step = "17", "1"
	cfg := deps.Config{
		Config: config.Config{Identity: id, LogDir: t.TempDir(), Times: config.DefaultTimeouts()},
		Set:    deps.Set{Access: access},
	}
	cfg.Roles.Step = step
	return cfg, signal.Location{LogDir: cfg.LogDir, Run: "17.0", Key: "k", Size: size, Host: head, Access: access}
}

// TestStep verifies what a daemon of a further step knows about the run that it joins, and that it
// does not make the next attempt itself.
func TestStep(t *testing.T) {
	for _, tc := range []struct {
		name          string
		local, index  int    // processes of the step on this host, and the own index in the step
		hosts         string // of the run
		node          int    // the daemon's node in it
		want          []string
		hasDefinition bool
	}{
		{"all nodes on this host", 2, 1, "a,b,c", 1, []string{"a", "b", "c"}, false},
		{"other nodes than the run's", 1, 0, "a,b,c", 1, []string{"a", "b", "c"}, true},
		{"the head's node", 2, 0, "a", 0, nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			own := launcher.Identity{Host: "b", NodeIndex: tc.index, Size: 2, LocalSize: tc.local}
			cfg, place := stepConfig(t, own, "judge", "b", 3)
			job := record.Job{Hosts: tc.hosts, Steps: []string{"actor", "judge"}}
			dir, err := signal.CreateRun(t.Context(), place, job)
			if err == nil {
				err = dir.ForNode(1).PublishRecord(t.Context(), signal.NodesDir,
					signal.NodeName(1, 3, record.StateJoined), new(record.Joined), false)
			}
			if err != nil {
				t.Fatal(err)
			}
			cfg.Roles.Spares, cfg.Streams.Err = roles.Spares{0: 1}, os.Stderr
			cfg.Team = membership.NodeRange{Min: 2, Max: 2}
			team := cfg.Team
			if tc.hasDefinition {
				cfg.Roles.Definitions, team = make([]roles.Definition, 1), membership.NodeRange{Min: 2, Max: 3}
			}
			var joined []deps.Config
			code := restart.Run(t.Context(), cfg, roles.RoleWorker,
				func(_ context.Context, cfg deps.Config, _ roles.DaemonRole) lifecycle.Exit {
					joined = append(joined, cfg)
					next := lifecycle.NextAttempt{Number: cfg.Identity.Attempt + 1}
					return lifecycle.Exit{Code: 3, Outcome: &lifecycle.Outcome{NextAttempt: next}}
				})
			if code != 3 || len(joined) != 1 {
				t.Fatalf("%s: got %d after %d attempts", tc.name, code, len(joined))
			}
			id := joined[0].Identity
			if id.Size != 3 || id.NodeIndex != record.MemberIndex(tc.node, 2, 3) ||
				!slices.Equal(id.Hosts, tc.want) || !slices.Equal(id.Steps, job.Steps) || joined[0].Team != team {
				t.Errorf("%s: got %+v, nodes %+v", tc.name, id, joined[0].Team)
			}
		})
	}
}

// TestStepFindsNoRun verifies that a daemon of a further step ends, and names what to change, if no
// run waits for its step or the run has other nodes.
func TestStepFindsNoRun(t *testing.T) {
	for _, tc := range []struct {
		step    string
		waiting []string // steps of the run
		code    int
		prints  string
	}{
		{"judge", []string{"actor"}, 66, "with the same --config"},
		{"judge", []string{"judge"}, 65, "cannot find c among the nodes of run 17.0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg, place := stepConfig(t, launcher.Identity{Host: "c", Size: 1, LocalSize: 1}, tc.step, "a", 2)
			_, err := signal.CreateRun(t.Context(), place, record.Job{Steps: tc.waiting})
			printed := filepath.Join(t.TempDir(), "stderr")
			if err == nil {
				cfg.Streams.Err, err = os.Create(printed)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cfg.Streams.Err.Close() }()
			code := restart.Run(t.Context(), cfg, roles.RoleWorker, nil)
			text, _ := os.ReadFile(printed)
			if code != tc.code || !strings.Contains(string(text), tc.prints) {
				t.Errorf("step %s of %q: got %d, %s", tc.step, tc.waiting, code, text)
			}
		})
	}
}
