package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// only returns a line of shell that runs a command on one node and then sleeps.
func only(rank, what string) string {
	return `[ "$BRINGUPD_NODE_RANK" = ` + rank + ` ] && { ` + what + `; }; exec sleep 300`
}

// waitsFor returns a line of shell that ends when a file exists.
func waitsFor(path string) string { return "while ! [ -e " + path + " ]; do sleep 0.02; done" }

// neverReady is a framework whose worker on one node does not become ready.
type neverReady struct {
	Rank int
	framework.None
}

func (f neverReady) WorkerService(self framework.Node, head framework.Endpoint) (*framework.Service, error) {
	service, err := f.None.WorkerService(self, head)
	if service != nil && self.LaunchIndex == f.Rank {
		service.CheckReady = func(context.Context) error { return errors.New("it does not exist") }
	}
	return service, err
}

// TestFirstCause lets one failure occur on one node: all daemons return the same code, and the
// result blames that node.
func TestFirstCause(t *testing.T) {
	t.Parallel()
	const size = 3
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *deps.Config)
		rank   int
		kind   health.Kind
		code   int
		phase  record.Phase
		line   string // among the last lines in the cause
		opened bool   // the gate was opened
	}{
		{
			name: "the setup of the head", rank: 0, kind: health.SetupFailed, code: 77, phase: "check", line: "no disk",
			change: func(_ *testing.T, c *deps.Config) {
				c.Setup = `[ "$BRINGUPD_NODE_RANK" != 0 ] || { echo no disk; exit 3; }`
			},
		},
		{
			name: "a worker that ends with 0", rank: 2, kind: health.ServiceDied, code: 77,
			phase: "driver", line: "bye", opened: true,
			change: func(_ *testing.T, c *deps.Config) {
				c.Framework = framework.None{WorkerCommand: only("2", "sleep 1; echo bye; exit 0")}
			},
		},
		{
			name: "a worker that dies before it is ready", rank: 1, kind: health.ServiceDied,
			code: 77, phase: "workers", line: "port taken",
			change: func(t *testing.T, c *deps.Config) {
				c.Framework = framework.None{WorkerCommand: only("1", "echo port taken; exit 1"),
					WorkerReady: probe(t, "file:/nonexistent")}
			},
		},
		{
			name: "a worker that never is ready", rank: 0, kind: health.ServiceDied, code: 77, phase: "workers",
			change: func(t *testing.T, c *deps.Config) {
				c.Framework = neverReady{0, framework.None{WorkerCommand: "exec sleep 300"}}
				c.Times.Start = time.Second
			},
		},
		{
			name: "the head's service before it is ready", rank: 0, kind: health.ServiceDied,
			code: 77, phase: "head", line: "bye",
			change: func(t *testing.T, c *deps.Config) {
				c.Framework = framework.None{HeadCommand: "echo bye; exit 4", HeadReady: probe(t, "file:/nonexistent")}
			},
		},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, size, "exec sleep 300").all(func(c *deps.Config) { tc.change(t, c) })
			j.start().expect(everyone(tc.code, size)...)
			cause := j.blames(tc.rank, tc.kind, tc.code)
			if cause.Phase != tc.phase {
				t.Errorf("the phase of the cause is %q, not %q", cause.Phase, tc.phase)
			}
			if tc.line != "" && !slices.Contains(cause.Lines, tc.line) {
				t.Errorf("the last lines are %q, without %q", cause.Lines, tc.line)
			}
			own := readRecordOf[record.Failure](j, signal.NodesDir, signal.NodeName(tc.rank, size, record.StateFailed))
			if own.Message != cause.Message || own.NodeIndex != tc.rank {
				t.Errorf("node %d has recorded %q of node %d; the result says %q", tc.rank,
					own.Message, own.NodeIndex, cause.Message)
			}
			if own.RecordDelay < 0 || own.RecordDelay != cause.RecordDelay || own.RecordDelay > time.Minute {
				t.Errorf("node %d has recorded that it happened %v before, the result %v", tc.rank,
					own.RecordDelay, cause.RecordDelay)
			}
			if abort := readRecordOf[record.Abort](j, signal.ControlDir,
				signal.AbortName(0, size)); abort.Code != tc.code {
				t.Errorf("the abort says %d", abort.Code)
			}
			if got := j.has(signal.ControlDir, signal.NameGateOpen); got != tc.opened {
				t.Errorf("the gate was opened: %v", got)
			}
			if j.has(signal.ControlDir, signal.NameOrderlyEnd) {
				t.Error("an abort is no drain")
			}
			for nodeIndex := range size {
				if !j.has(signal.NodesDir, signal.NodeName(nodeIndex, size, record.StateDone)) {
					t.Errorf("node %d has not said that it is done", nodeIndex)
				}
			}
		})
	}
}

// TestPartsFailTogether ends a daemon while two of its parts are active: each of them returns the
// same failure.
func TestPartsFailTogether(t *testing.T) {
	t.Parallel()
	for node := range 2 {
		rowInBubble(t, fmt.Sprint("on node ", node), func(t *testing.T) {
			marks := t.TempDir()
			j := newJob(t, 2, "exec sleep 300").all(func(c *deps.Config) {
				c.Sandbox = config.Sandbox{Command: "touch " + marks +
					"/sandbox.$BRINGUPD_NODE_RANK; exec sleep 300",
					Ready: probe(t, "file:/nonexistent"), Require: require(t, "all")}
				c.Framework = framework.None{WorkerCommand: "touch " + marks +
					"/worker.$BRINGUPD_NODE_RANK; exec sleep 300", WorkerReady: probe(t, "file:/nonexistent")}
			}).start()
			for _, what := range []string{"sandbox.0", "sandbox.1", "worker.0", "worker.1"} {
				j.untilFile(filepath.Join(marks, what))
			}
			j.signals[node] <- os.Interrupt
			j.expect(130, 130)
			j.blames(node, health.Interrupted, 130)
			for _, name := range j.names(signal.NodesDir) {
				if strings.HasSuffix(name, string(record.StateSandboxFailed)) {
					t.Errorf("no sandbox has failed, yet there is %s", name)
				}
			}
		})
	}
}

func TestUnlikeConfigurations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*deps.Config)
		kind   health.Kind
		code   int
	}{
		{"another driver", func(c *deps.Config) { c.Driver = service.ShellCommand("exit 9") }, health.Usage, 64},
		{"another number of nodes", func(c *deps.Config) { c.Identity.Size = 4 }, health.Launch, 65},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, 3, "exit 0")
			tc.change(&j.configs[1])
			j.start().expect(everyone(tc.code, 3)...)
			if cause := j.blames(1, tc.kind, tc.code); cause.Phase != "join" {
				t.Errorf("the phase of the cause is %q", cause.Phase)
			}
			// It stays until the end, like all daemons: srun kills the rest of the step after a task exits
			// with a nonzero code.
			if !j.has(signal.NodesDir, signal.NodeName(1, 3, record.StateDone)) {
				t.Error("the one that is unlike has not waited for the end")
			}
		})
	}
}

// TestSecondOfARank verifies that a second daemon of a node does not take part: the records of the
// first daemon stay, and the job continues.
func TestSecondOfARank(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.LinkMode{config.LinkOff, config.LinkAuto} {
		rowInBubble(t, string(mode), func(t *testing.T) {
			const second = 2
			mark := t.TempDir() + "/over"
			j := newJob(t, 2, "until [ -e "+mark+" ]; do sleep 0.05; done")
			j.add(1, roles.RoleWorker, "")
			j.configs[second] = j.configs[1]
			j.configs[second].Signals = j.signals[second]
			j.all(func(c *deps.Config) { c.Lifeline = mode })
			j.start(second)
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			joined := filepath.Join(j.run(), signal.NodesDir, signal.NodeName(1, 2, record.StateJoined))
			var before, after *memory.File
			j.share.Change(joined, func(f *memory.File) { before = f })
			j.start(0, 1)
			j.until("the second one's end", func() bool { _, over := j.ended()[second]; return over })
			j.share.Change(joined, func(f *memory.File) { after = f })
			if before == nil || before != after {
				t.Error("the record of the first is another one")
			}
			const says = "cannot take part as node 1 (n1): another daemon of this node has " +
				"joined already; start one daemon per node"
			if !strings.Contains(j.said(), says) {
				t.Errorf("nobody says %q: %s", says, j.said())
			}
			touch(t, mark)
			j.expect(0, 0, 65)
		})
	}
}
