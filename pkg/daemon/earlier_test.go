package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
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
