package roles

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ServiceMarks has what the nodes publish about the instances of built-in services, as states of their
// own.
type ServiceMarks struct {
	isHeadUp          bool
	sandboxes, failed []int         // nodes with a sandbox that is ready, or has failed, sorted
	workers           map[int][]int // nodes whose service is up, sorted, by the first plan of their place
	nodes             signal.Listing
}

// NewServiceMarks returns the marks in a listing of NodesDir. That of the head's service is not there.
func NewServiceMarks(nodes signal.Listing, isHeadUp bool) *ServiceMarks {
	return &ServiceMarks{
		isHeadUp: isHeadUp, nodes: nodes, workers: make(map[int][]int),
		sandboxes: nodes.NodesIn(record.StateSandboxReady), failed: nodes.NodesIn(record.StateSandboxFailed),
	}
}

// Of returns the mark of an instance of a built-in service that a node has had since the plan with
// the number since. ok is false if the node has published nothing about it.
func (m *ServiceMarks) Of(kind BuiltIn, instance, node, since int) (mark record.InstanceMark, ok bool) {
	mark = record.InstanceMark{Node: node, Instance: instance, Generation: since, State: record.InstanceReady}
	switch kind {
	case BuiltInHead:
		return mark, m.isHeadUp && node == 0
	case BuiltInWorker:
		up, isListed := m.workers[since]
		if !isListed {
			up = m.nodes.NodesIn(signal.ServiceUpState(since))
			m.workers[since] = up
		}
		return mark, isAmong(up, node)
	case BuiltInSandbox:
		if isAmong(m.failed, node) {
			mark.State = record.InstanceExited
			return mark, true
		}
		return mark, isAmong(m.sandboxes, node)
	default:
		return mark, false
	}
}

func isAmong(nodes []int, node int) bool {
	_, is := slices.BinarySearch(nodes, node)
	return is
}
