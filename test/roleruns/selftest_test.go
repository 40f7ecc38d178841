package roleruns

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// TestJudge checks that judge detects each kind of wrong outcome.
func TestJudge(t *testing.T) {
	server := &role{name: "server", nodes: "1", restarts: 1, start: -1, run: -1, explicitAfter: true}
	router := &role{name: "router", nodes: "head", start: -1, run: -1, after: []string{"server"}, explicitAfter: true}
	primary := &role{name: "primary", nodes: "head", primary: true, start: -1, run: -1}
	orderly := schedule{nodes: 1, roles: []*role{server, router, primary},
		steps: []step{{{kind: killProcess, role: "server"}}}}
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
			got.result.Cause = &record.Failure{Kind: health.ServiceDied, Child: "server.0",
				Message: "the server.0 died: killed by SIGKILL"}
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
		{"something left", orderly, func(g *seen) {
			g.left = []jobtest.Process{{PID: 7,
				Line: "sh"}}
		}, "still running: [7: sh]"},
		{"two copies", orderly, func(g *seen) { g.second = []string{"server.0.0.g1"} }, "a second copy"},
		{"no restart", orderly, func(g *seen) { g.starts = g.starts[2:] }, "server.0.0.g1 has not started"},
		{"a restart too many", orderly, func(g *seen) {
			g.starts = append(g.starts,
				"server.0.0.g2")
		}, "server.0.0.g2 has started and should not"},
		{"the wrong order", orderly, func(g *seen) { g.ends = append(g.ends[2:], g.ends[:2]...) },
			"level 2 was stopped"},
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
