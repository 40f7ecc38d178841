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
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// spared returns a job of size nodes; bounds limit the number of nodes that the driver gets.
func spared(t *testing.T, size int, bounds membership.NodeRange, line string) *job {
	t.Helper()
	return newJob(t, size, line).all(func(c *deps.Config) { c.Team = bounds })
}

// onLaunch returns a line of shell that runs one command on a single node, chosen by its index in
// the launch, and then another command on all nodes.
func onLaunch(nodeIndex int, what, then string) string {
	return fmt.Sprintf(`[ "$BRINGUPD_LAUNCH_RANK" = %d ] && { %s; }; %s`, nodeIndex, what, then)
}

const tellsTeam = `echo "$BRINGUPD_NODE_RANK of $BRINGUPD_NODE_COUNT: $BRINGUPD_HOSTS"`

// marked is a framework whose workers are up when they have created a file that shows that they
// run.
type marked struct {
	Marks string
	framework.None
}

func (f marked) WorkerService(self framework.Node, head framework.Endpoint) (*framework.Service, error) {
	service, err := f.None.WorkerService(self, head)
	if service != nil {
		service.CheckReady = func(context.Context) error {
			if names, _ := filepath.Glob(fmt.Sprintf("%s/%d-as-*", f.Marks, self.LaunchIndex)); len(names) > 0 {
				return nil
			}
			return errors.New("it has not marked that it runs")
		}
	}
	return service, err
}

// chose checks which nodes the driver got and which were dropped.
func (j *job) chose(team []int, dropped ...int) record.Result {
	j.t.Helper()
	result := j.result()
	if !slices.Equal(result.Team, team) {
		j.t.Errorf("the team is %v, not %v", result.Team, team)
	}
	var nodes []int
	for _, d := range result.Dropped {
		nodes = append(nodes, d.NodeIndex)
		if d.Reason == "" {
			j.t.Errorf("node %d is dropped for no reason", d.NodeIndex)
		}
	}
	if !slices.Equal(nodes, dropped) {
		j.t.Errorf("dropped are %v, not %v: %+v", nodes, dropped, result.Dropped)
	}
	return result
}

// starts counts the files that such services have created, by name.
func starts(t *testing.T, marks string) string {
	t.Helper()
	entries, err := os.ReadDir(marks)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// marking is a service that creates a file for each start: its launch index, its node index and the
// size of its membership.
func marking(marks string) string {
	return "touch " + marks + "/$BRINGUPD_LAUNCH_RANK-as-$BRINGUPD_NODE_RANK-of-$BRINGUPD_NODE_COUNT; exec sleep 300"
}

// TestNodesDropped lets one node fail before the gate: the driver runs on the others, and no daemon
// exits with a code of its own.
func TestNodesDropped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		size    int
		bounds  membership.NodeRange
		absent  []int
		change  func(t *testing.T, c *deps.Config, marks string)
		codes   []int
		team    []int
		dropped []int
		hosts   string
		started string
		why     string
	}{
		{
			name: "one that does not come", size: 3, bounds: membership.NodeRange{Min: 2, Max: 2},
			absent: []int{1}, codes: []int{0, -1, 0},
			change: func(*testing.T, *deps.Config, string) {},
			team:   []int{0, 2}, dropped: []int{1}, hosts: "n0,n2",
			started: "0-as-0-of-2 2-as-1-of-2", why: "did not join",
		},
		{
			name: "one that does not come, of as many as may", size: 3,
			bounds: membership.NodeRange{Min: 2, Max: 3}, absent: []int{1}, codes: []int{0, -1, 0},
			change: func(_ *testing.T, c *deps.Config, _ string) { c.Times.Join = 8 * time.Second },
			team:   []int{0, 2}, dropped: []int{1}, hosts: "n0,n2",
			started: "0-as-0-of-2 2-as-1-of-2", why: "did not join",
		},
		{
			name: "one whose service does not start", size: 4,
			bounds: membership.NodeRange{Min: 3, Max: 3}, codes: []int{0, 0, 0, 0},
			change: func(t *testing.T, c *deps.Config, marks string) {
				// The spare joins last, so that the membership is known.
				c.Setup = onLaunch(3, "until test -e "+marks+"/1-as-1-of-3; do sleep 0.05; done", "true")
				c.Framework = neverReady{1, framework.None{
					WorkerCommand: onLaunch(1, "touch "+marks+"/1-as-1-of-3; exit 5", marking(marks)),
				}}
			},
			team: []int{0, 3, 2}, dropped: []int{1}, hosts: "n0,n3,n2", why: "died before it was ready",
			started: "0-as-0-of-3 1-as-1-of-3 2-as-2-of-3 3-as-1-of-3",
		},
		{
			name: "one whose sandbox does not start", size: 3,
			bounds: membership.NodeRange{Min: 2, Max: 2}, codes: []int{0, 0, 0},
			change: func(t *testing.T, c *deps.Config, marks string) {
				c.Setup = onLaunch(2, "until test -e "+marks+"/1-as-1-of-2; do sleep 0.05; done", "true")
				c.Sandbox = config.Sandbox{
					Command: onLaunch(1, waitsFor(marks+"/1-as-1-of-2")+"; exit 6",
						waitsFor("$BRINGUPD_RUN_DIR/nodes/0001."+string(record.StateSandboxFailed))+
							"; touch "+marks+".gone; exec sleep 300"),
					Require: require(t, "all"),
					Ready:   probe(t, "file:"+marks+".gone"),
				}
			},
			team: []int{0, 2}, dropped: []int{1}, hosts: "n0,n2", why: "the sandbox of node 1 (n1)",
			started: "0-as-0-of-2 1-as-1-of-2 2-as-1-of-2",
		},
		{
			name: "one without a spare, where fewer will do", size: 3,
			bounds: membership.NodeRange{Min: 2, Max: 3}, codes: []int{0, 0, 0},
			change: func(t *testing.T, c *deps.Config, marks string) {
				c.Framework = neverReady{1, framework.None{
					WorkerCommand: onLaunch(1,
						waitsFor(marks+"/0-as-0-of-3")+"; "+waitsFor(marks+"/2-as-2-of-3")+"; exit 5", marking(marks)),
				}}
			},
			// All nodes that still run are informed of the new size.
			team: []int{0, 2}, dropped: []int{1}, hosts: "n0,n2", why: "died before it was ready",
			started: "0-as-0-of-2 0-as-0-of-3 2-as-1-of-2 2-as-2-of-3",
		},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			marks := t.TempDir()
			// The driver takes longer than a failed node would wait for an end.
			j := spared(t, tc.size, tc.bounds, "sleep 3; "+tellsTeam).all(func(c *deps.Config) {
				c.Framework = marked{marks, framework.None{WorkerCommand: marking(marks)}}
				tc.change(t, c, marks)
			})
			j.start(tc.absent...).expect(tc.codes...)
			if got, want := j.contents(j.out), fmt.Sprintf("0 of %d: %s\n", len(tc.team), tc.hosts); got != want {
				t.Errorf("the driver says %q, not %q", got, want)
			}
			if got := starts(t, marks); got != tc.started {
				t.Errorf("started were %s, not %s", got, tc.started)
			}
			result := j.chose(tc.team, tc.dropped...)
			if why := result.Dropped[0].Reason; !strings.Contains(why, tc.why) || result.Dropped[0].Host != "n1" {
				t.Errorf("dropped is %+v, without %q", result.Dropped[0], tc.why)
			}
			if result.Code != 0 || result.Cause != nil {
				t.Errorf("the result is %+v", result)
			}
		})
	}
}

// TestDriverOnTeam verifies that a driver without services runs on the team, and that no node of the team
// is said to be unused: the driver itself may use them.
func TestDriverOnTeam(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := spared(t, 3, membership.NodeRange{Min: 2, Max: 2}, tellsTeam)
		j.start().expect(0, 0, 0)
		if got := j.contents(j.out); got != "0 of 2: n0,n1\n" {
			t.Errorf("the driver says %q", got)
		}
		if said := j.said(); strings.Contains(said, "no role uses") {
			t.Errorf("a node of the team is said to be unused:\n%s", said)
		}
	})
}

// TestTooFewLeft verifies that too few remaining nodes end the job, with the first cause, as does the
// failure of the head, however many spares there are.
func TestTooFewLeft(t *testing.T) {
	for _, tc := range []struct {
		node   int // whose setup fails
		bounds membership.NodeRange
		absent []int
		codes  []int
	}{
		{2, membership.NodeRange{Min: 3, Max: 3}, []int{3}, []int{77, 77, 77, -1}},
		{0, membership.NodeRange{Min: 1, Max: 4}, nil, everyone(77, 4)},
	} {
		rowInBubble(t, fmt.Sprint("node ", tc.node), func(t *testing.T) {
			j := spared(t, 4, tc.bounds, "exit 0").all(func(c *deps.Config) {
				c.Times.Join = 5 * time.Second
				c.Setup = onLaunch(tc.node, "echo no disk; exit 3", "true")
			})
			j.start(tc.absent...).expect(tc.codes...)
			j.blames(tc.node, health.SetupFailed, 77)
			if j.has(signal.ControlDir, signal.NameGateOpen) {
				t.Error("the gate was opened")
			}
		})
	}
}

// waits returns a driver that runs until a file exists.
func waits(file string) string {
	return "until test -e " + file + "; do sleep 0.05; done; " + tellsTeam
}

// TestDeathOfSpare verifies that the death of a spare ends nothing and that of a member ends the
// job.
func TestDeathOfSpare(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "enough")
		j := spared(t, 3, membership.NodeRange{Min: 2, Max: 2}, waits(file)).all(func(c *deps.Config) {
			c.Setup = onLaunch(2, "sleep 1", "true") // it becomes the spare
			c.Framework = framework.None{WorkerCommand: "exec sleep 300"}
		}).start()
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		j.untilNamed(signal.NodesDir, signal.NodeName(2, 3, record.StateChecked))
		j.signals[2] <- os.Interrupt
		j.until("the end of the spare", func() bool { _, ended := j.ended()[2]; return ended })
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		j.expect(0, 0, 0)
		j.chose([]int{0, 1}, 2)
	})
}

// TestSilentSpare lets the mount of a spare hang permanently during the job: the job continues and
// names the spare.
func TestSilentSpare(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "enough")
		spare := new(mount)
		j := spared(t, 3, membership.NodeRange{Min: 2, Max: 2}, waits(file)).all(func(c *deps.Config) {
			c.Times.Peer, c.Times.Join = time.Second, 10*time.Second
			c.Setup = onLaunch(2, "sleep 1", "true")
			if c.Identity.NodeIndex == 2 {
				c.Access = asking(spare.pass)
			}
		})
		t.Cleanup(func() {
			spare.release()
			j.configs[2].Access.Meter.AwaitIdle(bounded(t))
		})
		j.start()
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		j.untilNamed(signal.NodesDir, signal.NodeName(2, 3, record.StateChecked))
		spare.stall()
		j.until("the end of the spare", func() bool { _, ended := j.ended()[2]; return ended })
		j.until("that the head has noticed", func() bool {
			return strings.Contains(j.said(),
				"a node is dropped, and the job continues")
		})
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		j.expect(0, 0, 0)
		j.chose([]int{0, 1}, 2)
	})
}
