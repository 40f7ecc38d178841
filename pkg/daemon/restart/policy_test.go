package restart

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// testPolicy returns the facts about the first attempt of four nodes, with the changes.
func testPolicy(changes ...func(*attemptPolicy)) attemptPolicy {
	p := attemptPolicy{maxRestarts: 3, nodes: 4, minNodes: 4}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func unfit(min int, nodes ...int) func(*attemptPolicy) {
	return func(p *attemptPolicy) { p.minNodes, p.unfitNodes = min, nodes }
}

func used(restarts int) func(*attemptPolicy) {
	return func(p *attemptPolicy) { p.attempt, p.used = restarts, restarts }
}

func TestDecideAttempt(t *testing.T) {
	never := func(p *attemptPolicy) { p.maxRestarts = 0 }
	forRoles := func(p *attemptPolicy) { p.forRoles = true }
	endRequested := func(p *attemptPolicy) { p.endRequested = true }
	gateOpened := func(p *attemptPolicy) { p.gateOpened = true }
	gains := func(gained bool) func(*attemptPolicy) {
		return func(p *attemptPolicy) {
			p.rules.On, p.progress = config.RestartOnAny, &record.Progress{Gained: gained, MaxStep: 1200}
		}
	}
	const noStep = "the maximum is still 1200"
	for _, tc := range []struct {
		name   string
		kind   health.Kind
		policy attemptPolicy
		again  bool
		why    string // a part of the reason
	}{
		{"nobody asks", health.PeerLost, testPolicy(never), false, ""},
		{"a peer is lost", health.PeerLost, testPolicy(), true, "peer-lost (76): attempt 2 of at most 4 follows"},
		{"the daemon died", health.DaemonDied, testPolicy(used(2)), true, "attempt 4 of at most 4 follows"},
		{"once too often", health.DaemonDied, testPolicy(used(3)), false, "again, in attempt 4 of at most 4"},
		{"a bad node and a spare", health.CheckFailed, testPolicy(unfit(3, 2)), true, "check (75): attempt 2"},
		{"a bad node too many", health.CheckFailed, testPolicy(unfit(3, 1, 2)), false,
			"2 of 4 nodes are left, and the driver needs 3"},
		{"enough nodes for the roles", health.CheckFailed, testPolicy(unfit(3, 1), forRoles), true, "attempt 2"},
		{"too few nodes for the roles", health.CheckFailed, testPolicy(unfit(3, 1, 2), forRoles), false,
			"2 of 4 nodes are left, and the roles need 3"},
		{"the head's node", health.GPUFailed, testPolicy(unfit(3, 0)), false, "the head's node or its daemon"},
		{"not back", health.NotReturned, testPolicy(), false, "the lost daemons were not restarted"},
		{"told to end", health.PeerLost, testPolicy(endRequested), false, "told to end from outside"},
		{"terminated", health.Terminated, testPolicy(), false, "cannot be fixed by another attempt"},
		{"a service", health.ServiceDied, testPolicy(gateOpened), false, "(77) does not lead to a restart without " +
			"--restart-on=service"},
		{"a service that does not start", health.ServiceDied, testPolicy(), false, "service (77) cannot be fixed"},
		{"a rank", health.RankFailed, testPolicy(), false, "rank (1) does not lead to a restart without " +
			"--restart-on=rank"},
		{"the share", health.ShareUnusable, testPolicy(), false, "share (66) cannot be fixed"},
		{"gave up", health.RequeuesExhausted, testPolicy(), false, "gave-up (69) cannot be fixed"},

		{"a step gained", health.RankFailed, testPolicy(used(1), gains(true)), true, ""},
		{"no step", health.RankFailed, testPolicy(used(1), gains(false)), false, noStep},
		{"no step, and aborted", health.RankAborted, testPolicy(used(1), gains(false)), false, noStep},
		{"no step of a driver", health.DriverFailed, testPolicy(used(1), gains(false)), false, noStep},
		{"no step, in the first attempt", health.RankFailed, testPolicy(gains(false)), true, ""},
		{"no step before a node was lost", health.PeerLost, testPolicy(used(1), gains(false)), true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			restarts, reason := decideAttempt(record.Failure{Kind: tc.kind}, tc.policy)
			if restarts != tc.again || !strings.Contains(reason, tc.why) || !restarts && tc.why == "" && reason != "" {
				t.Errorf("got %v and %q, want %v and %q", restarts, reason, tc.again, tc.why)
			}
		})
	}
}

// TestDecideByRules verifies which failures lead to a restart with each value of --restart-on, and
// which exit codes prevent one.
func TestDecideByRules(t *testing.T) {
	service := []config.RestartTrigger{config.RestartOnService, config.RestartOnAny}
	rank := []config.RestartTrigger{config.RestartOnRank, config.RestartOnAny}
	driver := []config.RestartTrigger{config.RestartOnAny}
	all := []config.RestartTrigger{"", config.RestartOnNode, config.RestartOnService, config.RestartOnRank,
		config.RestartOnAny}
	exited := func(kind health.Kind, code int) record.Failure { return record.Failure{Kind: kind, Code: code} }
	for _, tc := range []struct {
		name    string
		cause   record.Failure
		starts  bool // the failure is before the gate
		noCodes []int
		on      []config.RestartTrigger
	}{
		{"a lost node", exited(health.HostLost, 0), false, nil, all},
		{"a lost node before the gate", exited(health.HostLost, 0), true, nil, all},
		{"a lost node, and its code prevents it", exited(health.HostLost, 0), false, []int{76}, nil},
		{"an unfit node", exited(health.CheckFailed, 0), true, nil, all},
		{"a service", exited(health.ServiceDied, 0), false, nil, service},
		{"a sandbox", exited(health.SandboxDied, 0), false, nil, service},
		{"a service that does not start", exited(health.ServiceDied, 0), true, nil, nil},
		{"a setup command", exited(health.SetupFailed, 0), true, nil, nil},
		{"a rank", exited(health.RankFailed, 3), false, nil, rank},
		{"a killed rank", record.Failure{Kind: health.RankFailed, Signal: "SIGKILL"}, false, nil, rank},
		{"a rank with another code than those", exited(health.RankFailed, 3), false, []int{2, 4}, rank},
		{"a rank with one of the codes", exited(health.RankFailed, 3), false, []int{2, 3}, nil},
		{"a rank that was not found", exited(health.RankFailed, 127), false, nil, nil},
		{"a rank with a wrong command line", exited(health.RankFailed, 64), false, nil, nil},
		{"a rank without its directory", exited(health.RankFailed, 66), false, nil, nil},
		{"a rank with a code of its own", exited(health.RankFailed, 67), false, nil, rank},
		{"a rank that aborts", exited(health.RankAborted, 3), false, nil, rank},
		{"the driver", exited(health.DriverFailed, 1), false, nil, driver},
		{"the driver, which is not executable", exited(health.DriverFailed, 126), false, nil, nil},
		{"the driver with one of the codes", exited(health.DriverFailed, 9), false, []int{9}, nil},
		{"a deadline", exited(health.DeadlinePassed, 0), false, nil, nil},
		{"a signal that was passed on", record.Failure{Kind: health.Signalled, Signal: "SIGHUP"}, false, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, on := range all {
				restarts, reason := decideAttempt(tc.cause, testPolicy(func(p *attemptPolicy) {
					p.rules, p.gateOpened = config.RestartRules{On: on, NoCodes: tc.noCodes}, !tc.starts
				}))
				if want := slices.Contains(tc.on, on); restarts != want || reason == "" {
					t.Errorf("on %q got %v: %s", on, restarts, reason)
				}
			}
		})
	}
}

// TestRestartBudget verifies which restarts count against the maximum.
func TestRestartBudget(t *testing.T) {
	for _, tc := range []struct {
		name           string
		known, attempt int
		again          bool
		why            string
	}{
		{"none yet", 0, 0, true, "attempt 2 of at most 3 follows"},
		{"one, and a requeue", 1, 0, true, "attempt 2 of at most 2 follows"},
		{"all, and a requeue", 2, 0, false, "in attempt 1 of at most 1"},
		{"more than this daemon knows", 0, 2, false, "in attempt 3 of at most 3"},
	} {
		cfg := testConfig(launcher.Identity{Size: 4}, config.PostRun{Restarts: 2})
		cfg.Previous.History.Count = tc.known
		again, why := decideAttempt(record.Failure{Kind: health.PeerLost}, newAttemptPolicy(cfg, tc.attempt, true))
		if again != tc.again || !strings.Contains(why, tc.why) {
			t.Errorf("%s: again %v: %s", tc.name, again, why)
		}
	}
}

// TestRanksStartAgain verifies after which failures ranks start again within a run, and that this
// counts as an attempt.
func TestRanksStartAgain(t *testing.T) {
	failure := func(kind health.Kind, code int) record.Failure { return record.Failure{Kind: kind, Code: code} }
	stuck := &record.Progress{MaxStep: 7}
	for _, tc := range []struct {
		name       string
		cause      record.Failure
		on         config.RestartTrigger
		known      int // restarts before the run
		generation int
		progress   *record.Progress
		again      bool
		why        string
	}{
		{"a rank", failure(health.RankFailed, 3), config.RestartOnRank, 0, 0, nil, true,
			"attempt 2 of at most 3 follows"},
		{"with any", failure(health.RankAborted, 3), config.RestartOnAny, 0, 1, nil, true,
			"attempt 3 of at most 3 follows"},
		{"by default", failure(health.RankFailed, 3), "", 0, 0, nil, false, "without --restart-on=rank"},
		{"too often", failure(health.RankFailed, 3), config.RestartOnRank, 0, 2, nil, false,
			"in attempt 3 of at most 3"},
		{"after a requeue", failure(health.RankFailed, 3), config.RestartOnRank, 1, 1, nil, false,
			"in attempt 2 of at most 2"},
		{"a mistake", failure(health.RankFailed, 65), config.RestartOnRank, 0, 0, nil, false, "after this code"},
		{"a lost node", failure(health.PeerLost, 0), config.RestartOnRank, 0, 0, nil, false, ""},
		{"no step", failure(health.RankFailed, 3), config.RestartOnRank, 0, 1, stuck, false, "no step was gained"},
	} {
		after := config.PostRun{Restarts: 2, Rules: config.RestartRules{On: tc.on}}
		cfg := testConfig(launcher.Identity{Size: 4}, after)
		cfg.Previous.History.Count = tc.known
		again, why := DecideRanks(cfg, tc.cause, tc.generation, tc.progress, false)
		if again != tc.again || !strings.Contains(why, tc.why) {
			t.Errorf("%s: again %v: %s", tc.name, again, why)
		}
	}
}

// TestRankPause verifies that the first restart within a run comes at once, and that the pauses
// before others grow until the ranks have run for long.
func TestRankPause(t *testing.T) {
	began := time.Now()
	at := func(minutes ...int) (times []time.Time) {
		for _, m := range minutes {
			times = append(times, began.Add(time.Duration(m)*time.Minute))
		}
		return times
	}
	for _, tc := range []struct {
		earlier []time.Time
		want    time.Duration
	}{
		{nil, 0},
		{at(59), time.Second},
		{at(55, 59), 2 * time.Second},
		{at(30, 59), time.Second},
		{at(30), 0},
	} {
		if got := RankPause(tc.earlier, at(60)[0]); got != tc.want {
			t.Errorf("after restarts at %v the pause is %s, want %s", tc.earlier, got, tc.want)
		}
	}
}

func testConfig(id launcher.Identity, after config.PostRun) *deps.Config {
	return &deps.Config{Config: config.Config{Identity: id, After: after}}
}

// TestUnusableNodes verifies that a node whose daemon has died can come back, unless nothing can
// restart it.
func TestUnusableNodes(t *testing.T) {
	failure := func(kind health.Kind, lost ...int) record.Failure {
		return record.Failure{Kind: kind, LostNodes: lost}
	}
	for by, want := range map[launcher.Launcher][]int{launcher.LauncherSlurm: {5}, launcher.LauncherKubernetes: {5},
		launcher.LauncherLocal: {1, 2, 5}, launcher.LauncherHosts: {1, 2, 5}} {
		cfg := testConfig(launcher.Identity{Launcher: by, Size: 6}, config.PostRun{})
		cfg.Previous = deps.PreviousAttempts{
			Failures:   []record.Failure{failure(health.DaemonDied, 1), failure(health.HostHangs, 3)},
			UnfitNodes: []record.DroppedNode{{NodeIndex: 5}},
		}
		got := unusableNodes(cfg, []record.Failure{failure(health.DaemonDied, 2), failure(health.HostLost, 4)})
		if !slices.Equal(got, want) {
			t.Errorf("under %s unusable are %v, not %v", by, got, want)
		}
		if got := cfg.Previous.NodesEverLost(); !slices.Equal(got, []int{1, 3}) {
			t.Errorf("lost were %v", got)
		}
	}
}

// TestLostStepDaemon verifies that a node whose daemon of a further step has died is left, but unfit
// for roles if nothing can restart the daemon. Its member index is not that of a node.
func TestLostStepDaemon(t *testing.T) {
	for _, tc := range []struct {
		by     launcher.Launcher
		node   int
		min    int
		again  bool
		reason string
		unfit  []int
	}{
		{launcher.LauncherLocal, 1, 3, false, "nothing restarts step judge of node 1", []int{1}},
		{launcher.LauncherLocal, 1, 2, true, "attempt 2", []int{1}},
		{launcher.LauncherLocal, 0, 2, false, "nothing restarts step judge of node 0", []int{0}},
		{launcher.LauncherSlurm, 1, 3, true, "attempt 2", nil},
	} {
		died := record.Failure{Kind: health.DaemonDied, Message: "the daemon has died",
			LostNodes: []int{record.MemberIndex(tc.node, 1, 3)}}
		id := launcher.Identity{Launcher: tc.by, Size: 3, Steps: []string{"judge"}}
		cfg := testConfig(id, config.PostRun{Restarts: 1})
		cfg.Team = membership.NodeRange{Min: tc.min, Max: 3}
		next := Decide(cfg, lifecycle.OutcomeOfVerdict(health.Verdict{Cause: died}), false).NextAttempt
		if (next.Number > 0) != tc.again || !strings.Contains(next.Reason, tc.reason) ||
			strings.Contains(next.Reason, "are left") {
			t.Errorf("%s, at least %d nodes: %+v", tc.by, tc.min, next)
		}
		previous := addAttempt(cfg.Previous, []record.Failure{died}, &cfg.Identity, time.Now())
		var unfit []int
		for _, dropped := range previous.UnfitNodes {
			unfit = append(unfit, dropped.NodeIndex)
			if dropped.Reason != died.Message {
				t.Errorf("%s: dropped: %+v", tc.by, dropped)
			}
		}
		failures := previous.History.NodeFailures
		if !slices.Equal(unfit, tc.unfit) || failures[fmt.Sprint("node ", tc.node)] != 1 {
			t.Errorf("%s: unfit are %v, failures %v", tc.by, unfit, failures)
		}
	}
}

// TestNodeFailures verifies which failures count against nodes, over attempts and a requeue, and
// that nodes that share a host are counted by their index.
func TestNodeFailures(t *testing.T) {
	id := launcher.Identity{Size: 4, Host: "a", Hosts: []string{"a", "b", "c", "d"}, LocalSize: 1}
	lost := func(node int) record.Failure {
		return record.Failure{Kind: health.DaemonDied, LostNodes: []int{node}}
	}
	var p deps.PreviousAttempts
	for _, failures := range [][]record.Failure{
		{lost(2), lost(1)}, // the second one is a consequence
		{{Kind: health.RankFailed, Header: record.Header{NodeIndex: 1}}},
		{{Kind: health.ServiceDied, Header: record.Header{NodeIndex: 1}}, lost(1)},
		{{Kind: health.CheckFailed, Header: record.Header{NodeIndex: 1}}},
		{lost(2)},
		// Only the causes count, which are about no node.
		{{Kind: health.RankFailed}, {Kind: health.CheckFailed, Header: record.Header{NodeIndex: 3}}},
		{{Kind: health.NodesDiffer}, {Kind: health.GPUFailed, Header: record.Header{NodeIndex: 3}}},
	} {
		before := p
		had := maps.Clone(before.History.NodeFailures)
		p = addAttempt(before, failures, &id, time.Now())
		if !maps.Equal(before.History.NodeFailures, had) {
			t.Errorf("the history before %+v has changed to %v", failures, before.History.NodeFailures)
		}
	}
	want := map[string]int{"c": 2, "b": 1}
	if !maps.Equal(p.History.NodeFailures, want) || p.History.Count != 7 || len(p.History.Times) != 7 {
		t.Errorf("the history is %+v", p.History)
	}
	if suspect := p.SuspectNodes(&id); !slices.Equal(suspect, []int{2}) {
		t.Errorf("suspect are %v", suspect)
	}
	// After a requeue the hosts are other nodes.
	requeued := launcher.Identity{Size: 2, Host: "b", Hosts: []string{"b", "c"}, LocalSize: 1}
	p.History = addNodeFailures(p.History, []record.Failure{lost(0)}, &requeued)
	if suspect := p.SuspectNodes(&requeued); !slices.Equal(suspect, []int{0, 1}) {
		t.Errorf("after a requeue suspect are %v", suspect)
	}
	local := launcher.Identity{Size: 2, Host: "h", Hosts: []string{"h", "h"}, LocalSize: 2}
	p = deps.PreviousAttempts{}
	for range 2 {
		p = addAttempt(p, []record.Failure{lost(1)}, &local, time.Now())
	}
	if suspect := p.SuspectNodes(&local); !slices.Equal(suspect, []int{1}) {
		t.Errorf("on one host suspect are %v", suspect)
	}
}

// TestReplaceDriverEnd verifies that only a failed driver in a job that is restarted for that reason
// becomes a failure.
func TestReplaceDriverEnd(t *testing.T) {
	end := func(code int, requested bool) *lifecycle.Outcome {
		return &lifecycle.Outcome{Orderly: true, Name: health.DriverOutcomeName, Code: code, Requested: requested,
			Reason: "the driver has ended"}
	}
	for _, tc := range []struct {
		name    string
		err     error
		on      config.RestartTrigger
		attempt int
		want    bool
		reason  string // of the end, if it is not replaced
	}{
		{"it failed", end(3, false), config.RestartOnAny, 0, true, ""},
		{"it failed, for the last time", end(3, false), config.RestartOnAny, 1, false,
			"driver (3) again, in attempt 2 of at most 2"},
		{"it failed, and that is the user's", end(3, false), config.RestartOnRank, 0, false,
			"driver (3) does not lead to a restart without --restart-on=any"},
		{"it has succeeded", end(0, false), config.RestartOnAny, 0, false, ""},
		{"it was told to end", end(3, true), config.RestartOnAny, 0, false, ""},
		{"it was not found", end(127, false), config.RestartOnAny, 0, false,
			"driver (127): there is no restart after this code"},
		{"another failure", errors.New("x"), config.RestartOnAny, 0, false, ""},
		{"none", nil, config.RestartOnAny, 0, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(launcher.Identity{Size: 1, Attempt: tc.attempt},
				config.PostRun{Restarts: 1, Rules: config.RestartRules{On: tc.on}})
			got := ReplaceDriverEnd(cfg, tc.err, func() *record.Progress { return nil })
			f, replaced := errors.AsType[*health.Failure](got)
			if replaced != tc.want || !replaced && got != tc.err {
				t.Fatalf("got %v", got)
			}
			end, ended := errors.AsType[*lifecycle.Outcome](got)
			if ended && (end.NextAttempt.Reason != tc.reason || end.NextAttempt.Number != 0) {
				t.Errorf("the next attempt is %+v, want the reason %q", end.NextAttempt, tc.reason)
			}
			if replaced && (f.Kind != health.DriverFailed || health.OutcomeOfCause(f.Failure).Code != 3) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestDecideRequeue(t *testing.T) {
	asked := requeuePolicy{maxRequeues: 3}
	after := func(restarts int) requeuePolicy { return requeuePolicy{maxRequeues: 3, restarts: restarts} }
	cancelled := func(restarts int) requeuePolicy {
		return requeuePolicy{maxRequeues: 3, restarts: restarts, endRequested: true}
	}
	without := func(restarts int) requeuePolicy {
		return requeuePolicy{maxRequeues: 3, restarts: restarts, obstacle: "it is no batch job of Slurm's"}
	}
	lost, check := health.OutcomeOfKind(health.DaemonDied), health.OutcomeOfKind(health.CheckFailed)
	service := health.OutcomeOfKind(health.ServiceDied)
	driver := health.Outcome{Code: 76, Name: health.DriverOutcomeName}
	for _, tc := range []struct {
		name    string
		outcome health.Outcome
		policy  requeuePolicy
		requeue bool
		code    int
		why     string
	}{
		{"a peer was lost", lost, asked, true, 76, "peer-lost (76): the job is requeued (1 of at most 3)"},
		{"a node failed its check", check, asked, true, 75, "check (75): the job is requeued"},
		{"for the last time", lost, after(2), true, 76, "(3 of at most 3)"},
		{"once too often", lost, after(3), false, 69, "again, and the job has been requeued 3 times of at most 3"},
		{"a check once too often", check, after(4), false, 69, "4 times of at most 3"},
		{"never", lost, requeuePolicy{}, false, 69, "0 times of at most 0"},
		{"a service died", service, asked, false, 77, "service (77) cannot be fixed by another try"},
		{"a service died once too often", service, after(3), false, 77, "cannot be fixed by"},
		{"the driver's own code", driver, asked, false, 76, "driver (76) cannot be fixed by"},
		{"nobody can", lost, without(0), false, 76, "justifies another try, but it is no batch job of Slurm's"},
		{"nobody can, and it has been often", lost, without(3), false, 76, "but it is no batch job"},
		{"cancelled, and a peer went first", lost, cancelled(0), false, 76, "told to end from outside"},
		{"cancelled at the last try", lost, cancelled(3), false, 76, "told to end from outside"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			outcome, got := decideRequeue(tc.outcome, tc.policy)
			if got.Wanted != tc.requeue || outcome.Code != tc.code || !strings.Contains(got.Reason, tc.why) {
				t.Errorf("got %+v and %+v", outcome, got)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	begin := func(attempt int) nextMove { return nextMove{actionBegin, attempt} }
	for _, tc := range []struct {
		name       string
		seen       attemptState
		floor      int
		relaunches bool
		want       nextMove
	}{
		{"the first", attemptState{newest: -1}, 0, false, begin(0)},
		{"one is under way", attemptState{newest: 0}, 0, false, begin(0)},
		{"a later one is under way", attemptState{newest: 4}, 0, true, begin(4)},
		{"an earlier daemon was in it", attemptState{newest: 4, joined: true}, 0, false, nextMove{actionAwait, 4}},
		{"over, and another follows", attemptState{newest: 4, ended: true, joined: true, next: 5}, 0, false, begin(5)},
		{"over for good", attemptState{newest: 4, ended: true, joined: true}, 0, false, nextMove{actionFinish, 4}},
		{"over, and its name is used anew", attemptState{newest: 4, ended: true}, 0, true, begin(5)},
		{"over, and well", attemptState{newest: 4, ended: true, succeeded: true}, 0, true, nextMove{actionFinish, 4}},
		{"the next is not there yet", attemptState{newest: 4, ended: true, joined: true}, 5, false, begin(5)},
		{"the last does not seem to be over", attemptState{newest: 4, joined: true}, 5, false, begin(5)},
		{"others are further", attemptState{newest: 7}, 5, false, begin(7)},
		{"a requeue's number", attemptState{newest: 4, ended: true, next: 2}, 0, false, nextMove{actionFinish, 4}},
	} {
		if got := chooseMove(tc.seen, tc.floor, tc.relaunches); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for row, want := range map[int]time.Duration{
		1: 0, 2: time.Second, 3: 2 * time.Second, 7: 32 * time.Second, 8: time.Minute, 1000: time.Minute,
	} {
		if got := restartPause(row); got != want {
			t.Errorf("after %d in a row it is %s, not %s", row, got, want)
		}
	}
}
