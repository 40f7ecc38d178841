package daemon

import (
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestWithoutLink verifies that a node without a peer link, which still writes heartbeat files,
// stands by if the others are enough. If it is needed, or its link is back, it is a member.
func TestWithoutLink(t *testing.T) {
	cutOff := health.NewFailure(health.CutOff, "its network interface eth0 is down")
	cutOff.LostNodes = []int{1}
	for _, tc := range []struct {
		name string
		lost bool  // an earlier attempt has lost node 1
		down []int // nodes without a link
		team []int
		says string
	}{
		{"a spare takes its place", true, []int{1}, []int{0, 2, 3}, "0 of 3: n0,n2,n3\n"},
		{"it is needed", false, []int{1, 2}, []int{0, 1, 3}, "0 of 3: n0,n1,n3\n"},
		{"its link is back", true, nil, []int{0, 1, 2}, "0 of 3: n0,n1,n2\n"},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			firewall := new(network)
			firewall.refuses.Store(true)
			j := spared(t, 4, membership.NodeRange{Min: 3, Max: 3}, tellsTeam)
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
	}
}
