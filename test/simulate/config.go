// Package simulate runs the daemons of a whole job in one process and measures what it takes to
// bring them up: it uses the daemons' own code and real records, but no services, no driver, and no
// other nodes.
package simulate

import (
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// Config configures the simulation of one job.
type Config struct {
	Nodes int
	// Latency is added to every call into the shared file system.
	Latency time.Duration
	// Ranks is the number of ranks per node, and Fences the number of fences that they enter. Each
	// rank puts a value before each fence. If Ranks is 0, there is a driver instead of ranks.
	Ranks, Fences int
	// Roles are the roles of the job, whose processes are simulated. Without any, each node has a
	// service that is ready at once.
	Roles config.RoleSet
	GPUs  int // GPUs of each node, for the roles
	// DriverAlone selects a job without services, in which only the head has something to do.
	DriverAlone bool
	// LinkMode selects whether workers have a peer link to the head; empty means auto.
	LinkMode config.LinkMode
	// Trace selects that the calls which waited for each other are recorded.
	Trace bool

	JoinTimeout time.Duration // value of --join-timeout
	Peer        time.Duration // value of --peer-timeout
}

// Validate returns an error if the configuration cannot be simulated.
func (c Config) Validate() error {
	switch {
	case c.Nodes < 1:
		return fmt.Errorf("cannot simulate %d nodes", c.Nodes)
	case c.Ranks > 0 && c.Roles.AreGiven():
		return errors.New("cannot simulate ranks in a job with roles, whose ranks call no fences")
	case c.DriverAlone && (c.Ranks > 0 || c.Roles.AreGiven()):
		return errors.New("cannot simulate a driver alone in a job with ranks or roles")
	case !c.Roles.AreGiven():
		return nil
	}
	_, err := c.planRoles()
	return err
}

// planRoles returns where the instances of the roles run.
func (c Config) planRoles() (*preflight.RolePreview, error) {
	file := rolefile.File{Roles: c.Roles.Definitions, Spares: c.Roles.Spares}
	return preflight.NewRolePreview(file, preflight.AssumeNodes([]int{c.Nodes}, []int{c.GPUs}))
}

// daemonTimeouts returns the timeouts of the daemons.
func (c Config) daemonTimeouts() config.Timeouts {
	times := config.DefaultTimeouts()
	times.Join, times.Peer = c.JoinTimeout, c.Peer
	return times
}
