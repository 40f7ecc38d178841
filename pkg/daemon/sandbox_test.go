package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestSandboxRequired(t *testing.T) {
	t.Parallel()
	const size = 3
	for _, tc := range []struct {
		name, require string
		dies          string // the node whose sandbox ends
		early         bool   // before it is ready
		code          int
	}{
		{"all, and one dies before", "all", "1", true, 77},
		{"all, and one dies after", "all", "1", false, 77},
		{"any, and one dies after", "any", "0", false, 0},
		{"the head's, and a worker's dies", "head", "1", false, 0},
		{"the head's, and it dies", "head", "0", true, 77},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			marks := t.TempDir()
			open := filepath.Join(marks, "open")
			name := "000" + tc.dies + "." + string(record.StateSandboxFailed)
			driver := "touch " + open + "; exec sleep 300"
			if tc.code == 0 {
				driver = "touch " + open + "; " + waitsFor("$BRINGUPD_RUN_DIR/nodes/"+name) + "; echo driver"
			}
			j := newJob(t, size, driver).all(func(c *deps.Config) {
				c.Sandbox = config.Sandbox{Command: only(tc.dies, waitsFor(open)+"; echo bye; exit 0"),
					Require: require(t, tc.require)}
				if tc.early {
					c.Sandbox.Command = `[ "$BRINGUPD_NODE_RANK" = ` + tc.dies + ` ] && { touch ` + marks +
						`/died; echo bye; exit 0; }; ` + waitsFor(marks+"/died") + "; sleep 0.3; touch " + marks +
						"/late; exec sleep 300"
					c.Sandbox.Ready = probe(t, "file:"+marks+"/late")
				}
			}).start()
			j.expect(everyone(tc.code, size)...)
			failure := readRecordOf[record.Failure](j, signal.NodesDir, name)
			if failure.Kind != health.SandboxDied || failure.Phase != "sandbox" ||
				len(failure.Lines) != 1 || failure.Lines[0] != "bye" {
				t.Errorf("%s says %+v", name, failure)
			}
			if tc.code == 0 {
				if got := j.contents(j.out); got != "driver\n" {
					t.Errorf("standard output is %q", got)
				}
				return
			}
			j.blames(failure.NodeIndex, health.SandboxDied, tc.code)
		})
	}
}

// TestGateDoesNotWaitForMoreSandboxes runs one sandbox that never becomes ready while the gate
// needs only the other one.
func TestGateDoesNotWaitForMoreSandboxes(t *testing.T) {
	t.Parallel()
	for node := range 2 {
		rowInBubble(t, fmt.Sprint("on node ", node), func(t *testing.T) {
			// The first probe finds the sandbox ready; the slow node probes second.
			claimed, slow := filepath.Join(t.TempDir(), "claimed"), strconv.Itoa(node)
			j := newJob(t, 2, "echo driver").all(func(c *deps.Config) {
				c.Setup = "while [ $BRINGUPD_NODE_RANK = " + slow + " ] && ! test -e " + claimed +
					"; do sleep 0.05; done"
				c.Sandbox = config.Sandbox{Command: "exec sleep 300", Require: require(t, "any")}
				c.Sandbox.Ready = probe(t, "exec:/bin/sh -c 'mkdir "+claimed+"'")
				c.Times.Start = 40 * time.Second
			})
			began := time.Now()
			j.start().expect(0, 0)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if j.has(signal.NodesDir, signal.NodeName(node, 2, record.StateSandboxFailed)) {
				t.Error("a sandbox that was ended with the job is no failure")
			}
		})
	}
}

// newSteps returns a job of size nodes whose sandboxes are a separate step: the daemons with index
// size and above.
func newSteps(t *testing.T, size int, line, sandbox string) *job {
	t.Helper()
	j := newJob(t, size, line).all(func(c *deps.Config) {
		c.Sandbox = config.Sandbox{Step: true, Require: require(t, "all")}
		c.Identity.Steps = c.StepNames()
	})
	for nodeIndex := range size {
		j.add(size-1-nodeIndex, roles.RoleSandbox, "")
		cfg := &j.configs[size+nodeIndex]
		cfg.Sandbox = config.Sandbox{Command: sandbox, Require: require(t, "all")}
		// The sandboxes are another step, with the nodes in another order.
		cfg.Identity.Step, cfg.Roles.Step = "1", roles.SandboxStep
		cfg.Identity.NodeIndex, cfg.Identity.LocalSize, cfg.Identity.Steps = nodeIndex, 1, nil
	}
	return j
}

func TestSandboxStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		j := newSteps(t, 2, "ls "+marks,
			"touch "+marks+"/$BRINGUPD_NODE_RANK.$BRINGUPD_NODE_HOST; echo started; exec sleep 300")
		j.configs[2].Sandbox.Ready = counts(t, 2, marks+"/*")
		j.configs[3].Sandbox.Ready = counts(t, 2, marks+"/*")
		j.start().expect(0, 0, 0, 0)
		if got, want := j.contents(j.out), "0.n0\n1.n1\n"; got != want {
			t.Errorf("the driver saw %q, not %q", got, want)
		}
		// Their logs have the numbers of nodes.
		for node := range 2 {
			if log, err := j.read(filepath.Join(j.run(), signal.LogsDir,
				signal.LogName("sandbox", node, 2))); string(log) != "started\n" {
				t.Errorf("the log of node %d: %q, %v", node, log, err)
			}
		}
	})
}

// TestSandboxStepNeverStarts verifies that the gate waits longer once a daemon of the sandbox's step
// has appeared, and that the failure names the nodes without one.
func TestSandboxStepNeverStarts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		late   bool // the daemon on node 1 starts late
		took   time.Duration
		absent string
		codes  []int
	}{
		{"none appears", false, 11 * time.Second, "(--role=sandbox) has appeared on nodes 0-1:",
			[]int{124, 124, -1, -1}},
		{"one appears", true, 19 * time.Second, "(--role=sandbox) has appeared on node 0:", []int{124, 124, 124, -1}},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			began := time.Now()
			j := newSteps(t, 2, "true", "exec sleep 300").all(func(c *deps.Config) { c.Times.Start = 10 * time.Second })
			j.start(2, 3)
			if tc.late {
				time.Sleep(8 * time.Second)
				j.start(0, 1, 3)
			}
			j.expect(tc.codes...)
			cause := j.blames(0, health.DeadlinePassed, 124)
			if took := time.Since(began); took < tc.took || !strings.Contains(cause.Message, tc.absent) {
				t.Errorf("it ended after %s with %+v", took, cause)
			}
		})
	}
}

// TestSandboxStepOutlivesTheDriver sends all steps the signal to end: the sandboxes stay until the
// driver has saved its work.
func TestSandboxStepOutlivesTheDriver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		j := newSteps(t, 2, saving(marks, "0"),
			onTerm("touch "+marks+"/ended.$BRINGUPD_NODE_RANK; exit 0", ":")).start()
		j.untilFile(filepath.Join(marks, "running"))
		for _, signals := range j.signals {
			signals <- syscall.SIGTERM
		}
		j.expect(everyone(143, 4)...)
		saved, err := os.Stat(filepath.Join(marks, "saved"))
		if err != nil {
			t.Fatalf("the driver was not let to save its work: %v", err)
		}
		ended, err := os.Stat(filepath.Join(marks, "ended.1"))
		if err != nil || ended.ModTime().Before(saved.ModTime()) {
			t.Errorf("a sandbox ended before the driver had saved its work, or by force: %v", err)
		}
	})
}
