package roleruns

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// TestDraw checks that consecutive seeds draw all kinds of faults and many shapes of roles, always
// the same for a seed.
func TestDraw(t *testing.T) {
	kinds, shapes := make(map[kind]int), make(map[string]int)
	early := 0
	for seed := range uint64(720) {
		s := draw(seed, allKinds)
		if again := draw(seed, allKinds); again.String() != s.String() {
			t.Fatalf("seed %d draws first\n%s\nand then\n%s", seed, s, again)
		}
		if count := len(s.roles); count < 3 || count > 6 {
			t.Errorf("seed %d draws %d roles", seed, count)
		}
		if s.isStoppedEarly {
			early++
		}
		for _, f := range slices.Concat(append(s.steps, s.bad)...) {
			kinds[f.kind]++
		}
		for _, r := range s.roles {
			for what, is := range map[string]bool{
				"several nodes": slices.ContainsFunc(countTo(0, len(r.places)), r.spans), "with": r.with != "", "four": len(r.places) >= minCommon,
				"alive": r.alive, "spares": s.spares > 0, "oneshot": r.oneshot, "fewer": r.run >= 0, "after": len(r.after) > 0, "stubborn": r.behaviour.stubborn,
			} {
				if is {
					shapes[what]++
				}
			}
		}
	}
	for _, k := range allKinds {
		if k != noFault && kinds[k] < 7 {
			t.Errorf("%s: %d times", k, kinds[k])
		}
	}
	if early < 3 {
		t.Errorf("%d runs are stopped early", early)
	}
	if len(shapes) != 9 {
		t.Errorf("only these shapes were drawn: %v", shapes)
	}
}

// TestPredict checks the model.
func TestPredict(t *testing.T) {
	server := func(restarts, start, run int) *role {
		return &role{name: "server", nodes: "2", perNode: 2, probe: "tcp", restarts: restarts, start: start, run: run, backoff: time.Second}
	}
	primary := &role{name: "primary", nodes: "head", primary: true, start: -1, run: -1}
	kill := func(role string, index int) fault { return fault{kind: killProcess, role: role, index: index} }
	lose := func(node int) fault { return fault{kind: loseDaemon, node: node} }
	all := step{{kind: killAll, role: "server"}, {kind: killAll, role: "server", index: 1}, {kind: killAll, role: "server", index: 2}, {kind: killAll, role: "server", index: 3}}
	for _, tc := range []struct {
		name   string
		role   *role
		bad    []fault
		steps  []step
		want   string // the child and the code, or orderly, or nothing
		spares int
	}{
		{"no fault", server(0, -1, -1), nil, nil, "", 0},
		{"a kill with a restart", server(1, -1, -1), nil, []step{{kill("server", 0)}}, "", 0},
		{"a kill too many", server(1, -1, -1), nil, []step{{kill("server", 3)}, {kill("server", 3)}}, "server.3 77", 0},
		{"one may be lost", server(0, -1, 3), nil, []step{{kill("server", 1)}}, "", 0},
		{"two may not", server(0, -1, 3), nil, []step{{kill("server", 1)}, {kill("server", 2)}}, "server.2 77", 0},
		{"two at once", server(0, -1, 3), nil, []step{{kill("server", 1), kill("server", 2)}}, "server.2 77, server.1 77", 0},
		{"a start fails", server(3, -1, 3), []fault{{kind: badStart, role: "server", index: 1, code: 5}}, nil, "server.1 77", 0},
		{"a start may fail", server(3, 3, 3), []fault{{kind: badStart, role: "server", index: 1, code: 5}}, nil, "", 0},
		{"all once", server(3, -1, -1), nil, []step{all}, "", 0},
		{"all twice", server(3, -1, -1), nil, []step{all, all}, " 77", 0},
		{"a primary fails", server(0, -1, -1), nil, []step{{{kind: exitCode, role: "primary", code: 9}}}, "primary.0 9", 0},
		{"a primary ends", server(0, -1, -1), nil, []step{{{kind: finishProcess, role: "primary"}}}, "orderly", 0},
		{"a daemon", server(0, -1, -1), nil, []step{{{kind: killDaemon, node: 1}}}, " 76", 0},
		{"a daemon that is not needed", server(0, -1, 2), nil, []step{{lose(1)}}, "", 0},
		{"a daemon of a role with restarts", server(1, -1, -1), nil, []step{{lose(1)}}, " 76", 0},
		{"a spare for it", server(1, -1, -1), nil, []step{{lose(1)}, {kill("server", 2)}, {lose(2)}}, "", 1},
		{"a spare, and a restart too many", server(1, -1, -1), nil, []step{{lose(1)}, {kill("server", 2)}, {kill("server", 2)}}, "server.2 77", 1},
		{"a spare for a role without restarts", server(0, -1, -1), nil, []step{{lose(1)}}, " 76", 1},
		{"the daemon of the spare", server(1, -1, -1), nil, []step{{lose(3)}, {lose(1)}}, " 76", 1},
		{"a node without a role, and the head", server(1, -1, -1), nil, []step{{lose(2)}, {lose(0)}}, " 76", 2},
	} {
		s := schedule{nodes: 3, spares: tc.spares, roles: []*role{tc.role, primary}, bad: tc.bad, steps: tc.steps}
		layOut(s.roles, s.nodes)
		var got []string
		for _, end := range predict(s).ends {
			text := fmt.Sprintf("%s %d", end.child, end.code)
			if end.orderly {
				text = "orderly"
			}
			got = append(got, text)
		}
		if text := strings.Join(slices.Compact(got), ", "); text != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
		}
	}
}

// TestPredictMayStart checks that an instance may have started again if its death was observed before
// the one that ended the run.
func TestPredictMayStart(t *testing.T) {
	s := &role{name: "server", nodes: "1", restarts: 1, start: -1, run: -1}
	primary := &role{name: "primary", nodes: "head", primary: true, start: -1, run: -1}
	all := []*role{s, primary}
	layOut(all, 1)
	p := predict(schedule{nodes: 1, roles: all, steps: []step{{{kind: killTwo, role: "primary"}, {kind: killTwo, role: "server"}}}})
	for _, starts := range [][]string{{"server.0.0.g0", "primary.0.0.g0"}, {"server.0.0.g0", "server.0.0.g1", "primary.0.0.g0"}} {
		if wrong := judgeStarts(p, seen{starts: starts}, false); len(wrong) > 0 {
			t.Errorf("%v: %v", starts, wrong)
		}
	}
}

// TestJudge checks that judge detects each kind of wrong outcome.
func TestJudge(t *testing.T) {
	server := &role{name: "server", nodes: "1", restarts: 1, start: -1, run: -1, explicitAfter: true}
	router := &role{name: "router", nodes: "head", start: -1, run: -1, after: []string{"server"}, explicitAfter: true}
	primary := &role{name: "primary", nodes: "head", primary: true, start: -1, run: -1}
	orderly := schedule{nodes: 1, roles: []*role{server, router, primary}, steps: []step{{{kind: killProcess, role: "server"}}}}
	layOut(orderly.roles, 1)
	failed := orderly
	failed.steps = []step{orderly.steps[0], orderly.steps[0]}
	stopped := schedule{nodes: 1, roles: orderly.roles, isStoppedEarly: true}
	well := func(s schedule) seen {
		got := seen{
			result: new(record.Result),
			starts: []string{"server.0.0.g0", "server.0.0.g1", "router.0.0.g0", "primary.0.0.g0"},
			ends:   []string{"term router.0.0.g0", "end router.0.0.g0", "term server.0.0.g1", "end server.0.0.g1"},
		}
		if len(s.steps) > 1 {
			got.code, got.result.Code = 77, 77
			got.result.Cause = &record.Failure{Kind: health.ServiceDied, Child: "server.0", Message: "the server.0 died: killed by SIGKILL"}
		}
		return got
	}
	for _, tc := range []struct {
		name  string
		s     schedule
		spoil func(*seen)
		want  string // empty if nothing is wrong
	}{
		{"as it should be", orderly, func(*seen) {}, ""},
		{"as it should fail", failed, func(*seen) {}, ""},
		{"another code", orderly, func(g *seen) { g.code = 1 }, "ended with 1"},
		{"something left", orderly, func(g *seen) { g.left = []jobtest.Process{{PID: 7, Line: "sh"}} }, "still running: [7: sh]"},
		{"two copies", orderly, func(g *seen) { g.second = []string{"server.0.0.g1"} }, "a second copy"},
		{"no restart", orderly, func(g *seen) { g.starts = g.starts[2:] }, "server.0.0.g1 has not started"},
		{"a restart too many", orderly, func(g *seen) { g.starts = append(g.starts, "server.0.0.g2") }, "server.0.0.g2 has started and should not"},
		{"the wrong order", orderly, func(g *seen) { g.ends = append(g.ends[2:], g.ends[:2]...) }, "level 2 was stopped"},
		{"no time to end", orderly, func(g *seen) { g.ends = g.ends[:3] }, "server.0.0.g1 had no time to end"},
		{"not told to stop", orderly, func(g *seen) { g.ends = g.ends[:2] }, "server.0.0.g1 was told to stop 0 times"},
		{"a cause", orderly, func(g *seen) { g.result.Cause = &record.Failure{Message: "x"} }, "there is a cause: x"},
		{"another child", failed, func(g *seen) { g.result.Cause.Child = "router.0" }, "the cause is router.0"},
		{"another node", failed, func(g *seen) { g.result.Cause.NodeIndex = 1 }, "of node 1"},
		{"no result", failed, func(g *seen) { g.result = nil }, "the result is"},
		{"stopped early", stopped, func(g *seen) { g.code, g.result.Code, g.starts = 143, 143, nil }, ""},
		{"a success early", stopped, func(g *seen) { g.starts = g.starts[:1] }, "ended with 0"},
		{"stopped while it runs", stopped, func(g *seen) { g.starts = g.starts[3:] }, ""},
		{"no cause", failed, func(g *seen) { g.result.Cause = nil }, "there is no cause"},
		{"another end", failed, func(g *seen) { g.result.Cause.Message = "it died" }, "the cause is service: it died"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := well(tc.s)
			tc.spoil(&got)
			wrong := strings.Join(judge(tc.s, predict(tc.s), got), "; ")
			if !strings.Contains(wrong, tc.want) || (tc.want == "") != (wrong == "") {
				t.Errorf("got %q, want %q", wrong, tc.want)
			}
		})
	}
}
