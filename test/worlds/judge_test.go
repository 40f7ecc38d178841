package worlds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// seen is the outcome of a run.
type seen struct {
	code   int               // exit code of bringupd local
	result *record.Result    // nil if there is none
	left   []jobtest.Process // processes that are still running
}

// wanted is the expected outcome of a fault.
type wanted struct {
	kind health.Kind
	code int
	how  string // part of the cause's message
}

func wantedOf(s schedule) wanted {
	switch s.kind {
	case killRank:
		return wanted{health.RankFailed, 137, "killed by SIGKILL"}
	case outOfMemory:
		return wanted{health.RankFailed, 137, "memory"}
	case crashRank:
		return wanted{health.RankFailed, 139, "killed by SIGSEGV"}
	case exitRank:
		return wanted{health.RankFailed, s.code, fmt.Sprintf("exit code %d", s.code)}
	case abortRank:
		if s.mpi != "" { // MPI_Abort accepts no message
			return wanted{health.RankAborted, s.code,
				fmt.Sprintf("has aborted the job with code %d", s.code)}
		}
		return wanted{health.RankAborted, s.code, "the loss is not a number"}
	default:
		return wanted{health.DaemonDied, 76, ""}
	}
}

// judge returns everything that is wrong with the outcome of a run, or nil.
func judge(s schedule, got seen) (wrong []string) {
	want := wantedOf(s)
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if got.code != want.code {
		bad("bringupd ended with %d, want %d", got.code, want.code)
	}
	if len(got.left) > 0 {
		bad("still running: %v", got.left)
	}
	if got.result == nil || got.result.Cause == nil {
		return append(wrong, "there is no result with a cause")
	}
	cause := got.result.Cause
	if got.result.Code != want.code {
		bad("the result has the code %d, want %d", got.result.Code, want.code)
	}
	if cause.Kind != want.kind || !strings.Contains(cause.Message, want.how) {
		bad("the cause is %s (%s), want %s: %q", cause.Kind, cause.Message, want.kind, want.how)
	}
	switch {
	case want.kind == health.DaemonDied:
		if !slices.Equal(cause.LostNodes, []int{s.node()}) {
			bad("the nodes %v are blamed, want %d", cause.LostNodes, s.node())
		}
	case cause.WorldRank == nil || cause.WorldRank.Number != s.rank:
		bad("the rank %+v is blamed, want %d: %s", cause.WorldRank, s.rank, cause.Message)
	case cause.NodeIndex != s.node():
		bad("the rank is told to be on node %d, want %d", cause.NodeIndex, s.node())
	}
	return wrong
}

// TestJudge checks that judge detects each kind of wrong outcome.
func TestJudge(t *testing.T) {
	struck := schedule{kind: exitRank, rank: 6, code: 3}
	well := func() seen {
		cause := &record.Failure{
			Header: record.Header{NodeIndex: 1}, Kind: "rank",
			Message: "rank 6 (n1) failed: exit code 3", WorldRank: &record.WorldRank{Number: 6},
		}
		return seen{code: 3, result: &record.Result{Code: 3, Cause: cause}}
	}
	for _, tc := range []struct {
		name  string
		s     schedule
		spoil func(*seen)
		want  string // empty if nothing is wrong
	}{
		{"as it should be", struck, func(*seen) {}, ""},
		{"another code", struck, func(g *seen) { g.code = 1 }, "ended with 1"},
		{"another code in the result", struck, func(g *seen) { g.result.Code = 1 }, "the code 1"},
		{"another rank", struck, func(g *seen) { g.result.Cause.WorldRank.Number = 7 },
			"is blamed, want 6"},
		{"no rank", struck, func(g *seen) { g.result.Cause.WorldRank = nil }, "is blamed, want 6"},
		{"another node", struck, func(g *seen) { g.result.Cause.NodeIndex = 2 }, "on node 2"},
		{"another kind", struck, func(g *seen) { g.result.Cause.Kind = "service" },
			"the cause is service"},
		{"another end", struck, func(g *seen) { g.result.Cause.Message = "rank 6 (n1) died" },
			"the cause is rank"},
		{"no result", struck, func(g *seen) { g.result = nil }, "no result"},
		{"no cause", struck, func(g *seen) { g.result.Cause = nil }, "no result with a cause"},
		{"something left", struck, func(g *seen) { g.left = []jobtest.Process{{PID: 7, Line: "sh"}} },
			"still running: [7: sh]"},
		{"a daemon that is not blamed", schedule{kind: killDaemon, rank: 6}, func(*seen) {},
			"want daemon-died"},
		{"a daemon", schedule{kind: killDaemon, rank: 6}, func(g *seen) {
			g.code, g.result.Code, g.result.Cause.Kind, g.result.Cause.LostNodes = 76, 76,
				"daemon-died", []int{1}
		}, ""},
		{"another daemon", schedule{kind: killNode, rank: 6}, func(g *seen) {
			g.code, g.result.Code, g.result.Cause.Kind, g.result.Cause.LostNodes = 76, 76,
				"daemon-died", []int{1, 2}
		}, "[1 2] are blamed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := well()
			tc.spoil(&got)
			wrong := strings.Join(judge(tc.s, got), "; ")
			if !strings.Contains(wrong, tc.want) || (tc.want == "") != (wrong == "") {
				t.Errorf("got %q, want %q", wrong, tc.want)
			}
		})
	}
}
