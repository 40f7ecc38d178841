package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/instances"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/signal"
)

// head is node 0, which also leads the other nodes.
type head struct {
	node       *node
	started    time.Time
	nodeWatch  *signal.Watch  // watches Nodes
	peerLinks  *peerlink.Head // nil if there are no peer links
	membership *membership.Membership
	failureState

	rendezvous   rendezvous.Worlds // the worlds of ranks
	requests     *exec.Head
	nodeEventLog *lifecycle.NodeEventLog
	progress     bringUpProgress
	running      runningParts
}

// runningParts are what runs on the head for the whole run. Only the sequence uses them.
type runningParts struct {
	cluster framework.Cluster              // the framework's, once its service has been described
	world   atomic.Pointer[world.Head]     // nil if there are no ranks of flags
	roles   atomic.Pointer[instances.Head] // nil if there are no roles, or they have not been planned yet
	// endRoles ends the tasks of roles, which another plan before the gate replaces
	endRoles context.CancelFunc
	number   int // the newest plan's; -1: none
	// earlyChoice is the plan of the roles with which the run has begun; nil: it has begun without.
	earlyChoice *planning.NodeChoice
}

// bringUpProgress is the progress of the head's own part of the bring-up.
type bringUpProgress struct {
	serviceUp      chan struct{} // closed when the head's service is up
	pollingMembers atomic.Bool   // the framework's list of members is polled
	hasGPUs        atomic.Bool   // some node has GPUs

	timeToGate time.Duration // time from the start of the head to the open gate; 0 before
	// when the success of the driver was seen, and when all nodes had reported earlier exits
	endedAt, reportedAt time.Time
}

// newHead returns the head on node n. Nothing runs yet.
func newHead(n *node) *head {
	h := &head{
		node: n, started: time.Now(),
		membership: membership.NewMembership(n.id.Size, n.cfg.Team,
			!framework.TraitsOf(n.cfg.Framework).ReplaceableNodes),
	}
	h.progress.serviceUp, h.running.number = make(chan struct{}), -1
	earlier := membership.EarlierAttempts{Unfit: n.cfg.Previous.UnfitNodes, Suspect: n.cfg.Previous.SuspectNodes(&n.id)}
	if !n.id.Launcher.Facts().RelaunchesEachDaemon {
		earlier.Lost, earlier.LostForGood = n.cfg.Previous.NodesEverLost(), n.id.Launcher.LosesDaemonsForGood()
	}
	h.membership.SetEarlier(earlier)
	return h
}

// isServiceUp reports whether the head's service is up.
func (h *head) isServiceUp() bool { return ctxutil.AwaitDoneFor(h.progress.serviceUp, 0) }

// gateOpenTime returns how long the gate has been open, or 0 before.
func (h *head) gateOpenTime() time.Duration {
	if h.progress.timeToGate == 0 {
		return 0
	}
	return time.Since(h.started) - h.progress.timeToGate
}

// statePollInterval is the interval between two checks of the known states of the peers. It does
// not involve the file system.
const statePollInterval = 5 * time.Millisecond

// errDeadline is the cause of a context whose timeout has expired.
var errDeadline = health.ErrDeadline

// roleHead returns the head's part of the roles by the newest plan; nil: there is none.
func (h *head) roleHead() *instances.Head { return h.running.roles.Load() }

func (h *head) suspects() lifecycle.Suspects {
	return lifecycle.Suspects{Events: h.node.nodeEvents, Log: h.nodeEventLog,
		LastRanks: func() []lifecycle.LastRank { return h.roleHead().LastRanks() },
		IsLost:    func(node int) bool { return h.roleHead().IsLost(node) }}
}
