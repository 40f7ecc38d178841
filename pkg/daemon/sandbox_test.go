package daemon

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
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
