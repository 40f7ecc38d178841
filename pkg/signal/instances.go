package signal

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// instanceName is the information in a name in NodesDir about a generation of an instance on a node.
// Its number is that of a change of readiness, or what the state counts: thousandths of the step of
// the slowest rank, or changes between idle and active processes.
type instanceName struct {
	record.InstanceMark // without the change
	number              int64
	hasNumber           bool
}

func (n instanceName) format(size int) string {
	name := fmt.Sprintf("%0*d.i%04d.g%d.%s", IndexWidth(size), n.Node, n.Instance, n.Generation, n.State)
	if n.hasNumber {
		name += fmt.Sprintf(".%06d", n.number)
	}
	return name
}

// InstanceName returns the name in NodesDir for m, in a job of size nodes: 0007.i0042.g0.ready, or
// 0007.i0042.g0.ready.000004 for a later change.
func InstanceName(m record.InstanceMark, size int) string {
	return instanceName{m, int64(m.Change), m.Change > 0}.format(size)
}

// parseInstanceName parses a name of an instance. If size is 0, which means unknown, any width is
// accepted.
func parseInstanceName(name string, size int) (n instanceName, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) < 4 || len(parts) > 5 {
		return n, false
	}
	var valid [4]bool
	n.Node, valid[0] = parseIndex(parts[0])
	n.Instance, valid[1] = parseLettered(parts[1], "i")
	n.Generation, valid[2] = parseLettered(parts[2], "g")
	n.State, valid[3] = record.InstanceState(parts[3]), parts[3] != ""
	if len(parts) == 5 {
		n.number, n.hasNumber = parseNumber(parts[4], 63)
		valid[3] = valid[3] && n.hasNumber && (n.countsSomething() || n.number > 0)
	}
	ok = valid == [4]bool{true, true, true, true} && (size == 0 || n.Node < size) &&
		(n.hasNumber || !n.countsSomething()) &&
		name == n.format(max(size, sizeOfWidth(len(parts[0]))))
	return n, ok
}

// countsSomething reports whether a name with that state has a number that is not one of a change of
// readiness.
func (n instanceName) countsSomething() bool {
	state := record.State(n.State)
	return state == record.StateIdle || IsStepState(state)
}

// ParseInstanceName parses a name of [InstanceName]. If size is 0, which means unknown, any width is
// accepted.
func ParseInstanceName(name string, size int) (m record.InstanceMark, ok bool) {
	n, ok := parseInstanceName(name, size)
	if !ok || n.countsSomething() || n.number > math.MaxInt32 {
		return record.InstanceMark{}, false
	}
	n.Change = int(n.number)
	return n.InstanceMark, true
}

// sizeOfWidth returns the smallest size of a job whose node indices have so many digits.
func sizeOfWidth(width int) int {
	size := 1
	for IndexWidth(size) < width {
		size *= 10
	}
	return size
}

func parseLettered(text, letter string) (int, bool) {
	digits, is := strings.CutPrefix(text, letter)
	number, ok := parseNumber(digits, 31)
	return int(number), is && ok
}

// InstanceStep is the step that a node has published for a generation of an instance.
type InstanceStep struct {
	Node, Instance, Generation int
	NodeStep                   // of the slowest rank of the instance on the node
}

// InstanceStepName returns the name in NodesDir for the step that the slowest rank of an instance on
// a node has reached: 0007.i0042.g0.step-3.020000 for step 20.
func InstanceStepName(s InstanceStep, size int) string {
	n := instanceName{number: int64(math.Round(s.Step * stepFraction)), hasNumber: true}
	n.Node, n.Instance, n.Generation = s.Node, s.Instance, s.Generation
	n.State = record.InstanceState(stepState(s.Rank))
	return n.format(size)
}

// InstanceIdleName returns the name in NodesDir of the nth change between idle and active processes
// of a generation of an instance on a node: they are idle if n is odd.
func InstanceIdleName(node, size, instance, generation, n int) string {
	name := instanceName{number: int64(n), hasNumber: true}
	name.Node, name.Instance, name.Generation = node, instance, generation
	name.State = record.InstanceState(record.StateIdle)
	return name.format(size)
}

// InstanceSteps returns the newest published steps of the newest generation of each instance on each
// node, in a listing of NodesDir.
func (l Listing) InstanceSteps() (steps []InstanceStep) {
	type place struct{ node, instance int }
	newest := make(map[place]InstanceStep)
	for _, c := range l.instanceCounts {
		rank, is := parseStepState(record.State(c.State))
		if !is {
			continue
		}
		at := place{c.Node, c.Instance}
		step := InstanceStep{c.Node, c.Instance, c.Generation, NodeStep{rank, float64(c.number) / stepFraction}}
		if known, there := newest[at]; !there || step.isNewer(known) {
			newest[at] = step
		}
	}
	for _, step := range newest {
		steps = append(steps, step)
	}
	return steps
}

// isNewer reports whether a step replaces another one of the same instance and node. A name that
// could not be removed has a lower step, or an earlier generation.
func (s InstanceStep) isNewer(known InstanceStep) bool {
	return cmp.Or(
		cmp.Compare(s.Generation, known.Generation), cmp.Compare(s.Step, known.Step),
		cmp.Compare(known.Rank, s.Rank),
	) > 0
}

// IdleInstanceNodes returns the sorted indices of the nodes on which all processes of a generation of
// an instance are idle, in a listing of NodesDir.
func (l Listing) IdleInstanceNodes(instance, generation int) []int {
	newest := make(map[int]int64) // by node
	for _, c := range l.instanceCounts {
		isOf := c.Instance == instance && c.Generation == generation
		if isOf && record.State(c.State) == record.StateIdle {
			newest[c.Node] = max(newest[c.Node], c.number)
		}
	}
	return oddNodes(newest)
}

// oddNodes returns the sorted nodes whose number is odd: those that are idle.
func oddNodes(numbers map[int]int64) (nodes []int) {
	for node, n := range numbers {
		if n%2 == 1 {
			nodes = append(nodes, node)
		}
	}
	return sortUnique(nodes)
}

// StartName returns the name in ControlDir by which the head starts a role.
func StartName(role string) string { return startPrefix + "." + role }

// EndName returns the name in ControlDir by which the head stops a level of roles, from 1.
func EndName(level int) string { return endPrefix + "." + strconv.Itoa(level) }

// LostName returns the name in ControlDir by which a member that was taken for lost, and runs again,
// learns that its part in the run is over.
func LostName(member, size int) string { return lostPrefix + "." + memberText(member, size) }

// InstanceOrders has the newest orders of the head for an instance that spans several nodes.
type InstanceOrders struct {
	Stop  int // all generations before this one are stopped; 0: none
	Start int // the newest generation that was started; 0: the first, without an order
}

// InstanceOrders returns the newest orders for each instance in a listing of ControlDir.
func (l Listing) InstanceOrders() map[int]InstanceOrders {
	orders := make(map[int]InstanceOrders)
	for _, name := range l.names {
		parts := strings.Split(name, ".")
		if len(parts) != 4 || parts[0] != instancePrefix {
			continue
		}
		instance, isInstance := parseIndex(parts[1])
		generation, isGeneration := parseLettered(parts[2], "g")
		if !isInstance || !isGeneration {
			continue
		}
		order := orders[instance]
		switch name {
		case OrderName(instance, generation, OrderStop):
			order.Stop = max(order.Stop, generation)
		case OrderName(instance, generation, OrderStart):
			order.Start = max(order.Start, generation)
		}
		orders[instance] = order
	}
	return orders
}

// Order is an order of the head for a generation of an instance, or a fact about it.
type Order string

// The orders.
const (
	OrderStop  Order = "stop"  // stops all generations of the instance before this one
	OrderStart Order = "start" // starts this generation
	// OrderConnect lets the other nodes of a cluster connect to its first node, on which this generation
	// has its head's service.
	OrderConnect Order = "head"
)

// OrderHang returns the order by which the head gives the failure of a generation that hangs to one
// of its nodes.
func OrderHang(node int) Order { return Order(fmt.Sprintf("hang-%d", node)) }

// OrderName returns the name in ControlDir of an order.
func OrderName(instance, generation int, order Order) string {
	return fmt.Sprintf("%s.%04d.g%d.%s", instancePrefix, instance, generation, order)
}

// Instances returns the marks of instances in a listing of NodesDir. The caller must not change the
// slice.
func (l Listing) Instances() []record.InstanceMark { return l.instances }
