package membership

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Placement is a node's place in the membership, and its service in that place.
type Placement struct {
	NodeHooks

	// Slot is nil if this node has no place. Without spares it is the place that the launch gives.
	Slot        atomic.Pointer[Slot]
	Excluded    atomic.Bool // the job continues without this node, which was a member or has failed
	SawOpenGate atomic.Bool // a spare or a member has seen the open gate

	mu      sync.Mutex
	current *assignment // the running service; used only by the task that follows the membership
}

// NodeHooks has the functions of a placement's node.
type NodeHooks struct {
	Background  func(task func(ctx context.Context))
	EndRun      func(err error)      // ends the node's part in the run
	StopService func(service string) // ends a service of the node
}

// Slot is a place in the membership, as in the environment of the service there.
type Slot struct {
	TeamIndex, Size int
	Generation      int // first generation with this place for the node
}

// assignment is the assignment of a node to a place, with its service.
type assignment struct {
	slot    *Slot
	service string // name of the worker's child process; empty before it starts
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the function that starts the service has returned
}

// errSlotChanged is the cause of the end of a slot's context when the node gets another slot.
var errSlotChanged = errors.New("this node's placement in the team has changed")

// AssignSlot runs the node's worker in a place, after ending the one in its present place, if any.
// It is not safe for concurrent use.
func (p *Placement) AssignSlot(ctx context.Context, place *Slot, run func(ctx context.Context) error) {
	p.ReleaseSlot()
	ctx, cancel := context.WithCancelCause(ctx)
	t := &assignment{slot: place, cancel: cancel, done: make(chan struct{})}
	p.mu.Lock()
	p.current = t
	p.mu.Unlock()
	p.Slot.Store(place)
	p.Background(func(context.Context) {
		defer close(t.done)
		if err := run(ctx); err != nil && p.Slot.Load() == place {
			p.EndRun(err)
		}
	})
}

// AssignedSince reports whether a worker runs in a place, and since which generation. Only the task
// that follows the membership may call it.
func (p *Placement) AssignedSince() (since int, is bool) {
	if p.current == nil {
		return 0, false
	}
	return p.current.slot.Generation, true
}

// SetService records the service in this node's place.
func (p *Placement) SetService(service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.current.service = service
	}
}

// ReleaseSlot ends the service in the node's place, if it has one.
func (p *Placement) ReleaseSlot() {
	t := p.current
	if t == nil {
		return
	}
	p.Slot.Store(nil)
	t.cancel(errSlotChanged)
	<-t.done
	p.StopService(t.service)
	p.mu.Lock()
	p.current = nil
	p.mu.Unlock()
}

// IsStandby reports whether this node has no part in a running job.
func (p *Placement) IsStandby() bool { return p.SawOpenGate.Load() && p.Slot.Load() == nil }
