package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

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

// TestWithoutLink verifies that a node without a peer link, which still writes heartbeat files,
// stands by if the others are enough, and that what an earlier attempt has lost also does so if the
// driver could run on more nodes. If it is needed, or its link is back, it is a member.
func TestWithoutLink(t *testing.T) {
	cutOff := health.NewFailure(health.CutOff, "its network interface eth0 is down")
	cutOff.LostNodes = []int{1}
	three, threeOrMore := membership.NodeRange{Min: 3, Max: 3}, membership.NodeRange{Min: 3, Max: 4}
	for _, tc := range []struct {
		name   string
		bounds membership.NodeRange
		lost   bool  // an earlier attempt has lost node 1
		down   []int // nodes without a link
		team   []int
		says   string
	}{
		{"a spare takes its place", three, true, []int{1}, []int{0, 2, 3}, "0 of 3: n0,n2,n3\n"},
		{"fewer are enough", threeOrMore, true, []int{1}, []int{0, 2, 3}, "0 of 3: n0,n2,n3\n"},
		{"in the first attempt", three, false, []int{1}, []int{0, 2, 3}, "0 of 3: n0,n2,n3\n"},
		{"it is needed", three, false, []int{1, 2}, []int{0, 1, 3}, "0 of 3: n0,n1,n3\n"},
		{"its link is back", three, true, nil, []int{0, 1, 2}, "0 of 3: n0,n1,n2\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				firewall := new(network)
				firewall.refuses.Store(true)
				j := spared(t, 4, tc.bounds, tellsTeam)
				j.all(func(c *deps.Config) {
					c.Identity.Launcher = launcher.LauncherSlurm // a lost node may come back
					if tc.lost {
						c.Identity.Attempt = 1
						c.Previous.Failures = []record.Failure{cutOff.Failure}
					}
					if slices.Contains(tc.down, c.Identity.NodeIndex) {
						c.Network = firewall
					}
				})
				j.start().expect(0, 0, 0, 0)
				j.chose(tc.team)
				if got := j.contents(j.out); got != tc.says {
					t.Errorf("the driver said %q", got)
				}
			})
		})
	}
}

// TestRolesWithoutLink verifies that the roles do not use a node without a peer link if there are
// more nodes than they need, whether these are spares or no role claims them.
func TestRolesWithoutLink(t *testing.T) {
	for name, set := range map[string]config.RoleSet{
		"a spare": {Definitions: primaryRole(roles.NodesRest), Spares: roles.Spares{0: 1}},
		"idle":    {Definitions: primaryRole(3)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				firewall := new(network)
				firewall.refuses.Store(true)
				j := newJob(t, 4, "").all(func(c *deps.Config) {
					c.Roles, c.Simulation.FirstPort = set, 20000
					c.Team = set.NodeRange(membership.NodeRange{}, 4)
					if c.Identity.NodeIndex == 1 {
						c.Network = firewall
					}
				})
				j.start().expect(0, 0, 0, 0)
				var nodes []int
				plan := readRecordOf[roles.PlanRecord](j, signal.ControlDir, signal.PlanName(0))
				for _, offer := range plan.Offers[:3] {
					nodes = append(nodes, offer.NodeIndex)
				}
				if !slices.Equal(nodes, []int{0, 2, 3}) {
					t.Errorf("the roles use %v", nodes)
				}
			})
		})
	}
}

// primaryRole returns a role with one process on each of its nodes, which ends at once.
func primaryRole(nodes int) []roles.Definition {
	def := roles.Definition{Name: "main", Primary: true}
	def.Required = roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}
	def.Placement.Nodes, def.Program.Command, def.Ready.Timeout = nodes, "exit 0", time.Minute
	return []roles.Definition{def}
}

// TestNotBack verifies that the head gives up soon if only nodes are missing that an earlier
// attempt has lost, and waits for all others.
func TestNotBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lost []record.DroppedNode
		kind health.Kind
		code int
		says string
	}{
		{"lost", []record.DroppedNode{{NodeIndex: 2}}, health.NotReturned, 76, "cannot continue without node 2: lost in attempt 1, and not restarted within 3"},
		{"another one", []record.DroppedNode{{NodeIndex: 1}}, health.ShareUnusable, 66, "cannot reach 1 of 3 nodes: node 2 did not join"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				j := newJob(t, 3, "true").all(func(c *deps.Config) {
					c.Identity.Attempt, c.Previous.LostNodes, c.After.Restarts = 1, tc.lost, 3
					c.Times.Peer, c.Times.Join = time.Second, 6*time.Second
				})
				j.start(2).expect(tc.code, tc.code, -1)
				if cause := j.blames(0, tc.kind, tc.code); !strings.Contains(cause.Message, tc.says) {
					t.Errorf("the cause is %q", cause.Message)
				}
				if next := j.result().NextAttempt; next != 0 {
					t.Errorf("attempt %d follows", next)
				}
			})
		})
	}
}

// TestRestartsBeforeARequeue verifies that the job is requeued only if no attempt is left.
func TestRestartsBeforeARequeue(t *testing.T) {
	for _, tc := range []struct {
		name          string
		attempt, next int
		requeued      bool
	}{{"an attempt is left", 1, 2, false}, {"none is left", 2, 0, true}} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := deps.Config{Config: config.Config{Identity: testIdentity(0, 3), After: config.PostRun{
				Restarts: 2, Requeue: config.RequeueConfig{OnFailure: true, Most: 1, By: new(fakeRequeuer)},
			}}}
			cfg.Identity.Attempt, cfg.Team = tc.attempt, membership.NodeRange{Min: 2, Max: 3}
			n := bare(t, cfg, nil)
			defer n.Close()
			f := health.NewFailure(health.DaemonDied, "n1 has died")
			f.LostNodes = []int{1}
			end := restart.Decide(&n.cfg, lifecycle.OutcomeOfVerdict(health.DecideVerdict([]health.ObservedFailure{{Failure: f.Failure}}, n.id.HostOf)), false)
			if end.NextAttempt.Number != tc.next || (end.Requeue != nil && end.Requeue.Wanted) != tc.requeued || end.Code != 76 {
				t.Errorf("it ends with %d, attempt %d follows, and the requeue is %+v", end.Code, end.NextAttempt.Number, end.Requeue)
			}
		})
	}
}
