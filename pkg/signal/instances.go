package signal

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// InstanceName returns the name in NodesDir for m, in a job of size nodes: 0007.i0042.g0.ready, or
// 0007.i0042.g0.ready.000004 for a later change.
func InstanceName(m record.InstanceMark, size int) string {
	name := fmt.Sprintf("%0*d.i%04d.g%d.%s", IndexWidth(size), m.Node, m.Instance, m.Generation, m.State)
	if m.Change > 0 {
		name += fmt.Sprintf(".%06d", m.Change)
	}
	return name
}

// ParseInstanceName parses a name of [InstanceName]. If size is 0, which means unknown, any width is
// accepted.
func ParseInstanceName(name string, size int) (m record.InstanceMark, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) < 4 || len(parts) > 5 {
		return m, false
	}
	m, ok = parseInstance(parts[:4], size)
	if len(parts) == 5 {
		change, isNumber := parseIndex(parts[4])
		if !isNumber || change == 0 {
			return record.InstanceMark{}, false
		}
		m.Change = change
	}
	ok = ok && !hasInstanceNumber(m.State) && name == InstanceName(m, max(size, sizeOfWidth(len(parts[0]))))
	return m, ok
}

// parseInstance parses the parts of a name up to the state.
func parseInstance(parts []string, size int) (m record.InstanceMark, ok bool) {
	if len(parts) != 4 {
		return m, false
	}
	node, isNode := parseIndex(parts[0])
	instance, isInstance := parseLettered(parts[1], "i")
	generation, isGeneration := parseLettered(parts[2], "g")
	m = record.InstanceMark{Node: node, Instance: instance, Generation: generation, State: record.InstanceState(parts[3])}
	return m, isNode && isInstance && isGeneration && m.State != "" && (size == 0 || node < size)
}

// sizeOfWidth returns the smallest size of a job whose node indices have so many digits.
func sizeOfWidth(width int) int {
	size := 1
	for IndexWidth(size) < width {
		size *= 10
	}
	return size
}

// parseLettered parses a number after a letter.
func parseLettered(text, letter string) (int, bool) {
	digits, is := strings.CutPrefix(text, letter)
	number, ok := parseNumber(digits, 31)
	return int(number), is && ok
}

// PlanName returns the name in ControlDir of the nth plan of the roles.
func PlanName(n int) string { return fmt.Sprintf("%s.%04d", planPrefix, n) }

// StartName returns the name in ControlDir by which the head starts a role.
func StartName(role string) string { return startPrefix + "." + role }

// EndName returns the name in ControlDir by which the head stops a level of roles, from 1.
func EndName(level int) string { return endPrefix + "." + strconv.Itoa(level) }

// LostName returns the name in ControlDir by which a member that was taken for lost, and runs again,
// learns that its part in the run is over.
func LostName(member, size int) string { return lostPrefix + "." + memberText(member, size) }

// LiveName returns the name in ControlDir of the nth list of ready instances.
func LiveName(n int) string { return fmt.Sprintf("%s.%06d", livePrefix, n) }

// StopInstanceName returns the name in ControlDir by which the head stops all generations of an
// instance before the given one.
func StopInstanceName(instance, generation int) string {
	return orderName(instance, generation, "stop")
}

// StartInstanceName returns the name in ControlDir by which the head starts a generation of an
// instance.
func StartInstanceName(instance, generation int) string {
	return orderName(instance, generation, "start")
}

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
		case StopInstanceName(instance, generation):
			order.Stop = max(order.Stop, generation)
		case StartInstanceName(instance, generation):
			order.Start = max(order.Start, generation)
		}
		orders[instance] = order
	}
	return orders
}

// HeadInstanceName returns the name in ControlDir by which the head lets the other nodes of a cluster
// connect to its first node, on which a generation of the instance has its head's service.
func HeadInstanceName(instance, generation int) string {
	return orderName(instance, generation, "head")
}

func orderName(instance, generation int, order string) string {
	return fmt.Sprintf("%s.%04d.g%d.%s", instancePrefix, instance, generation, order)
}

// Instances returns the marks of instances in a listing of NodesDir. The caller must not change the
// slice.
func (l Listing) Instances() []record.InstanceMark { return l.instances }

// NewestPlan returns the number of the newest plan in a listing of ControlDir, or -1 if there is
// none.
func (l Listing) NewestPlan() int { return l.newestNumber(planPrefix) }

// NewestLive returns the number of the newest list of ready instances in a listing of ControlDir, or
// -1 if there is none.
func (l Listing) NewestLive() int { return l.newestNumber(livePrefix) }

// newestNumber returns the highest number of the names in ControlDir with a prefix, or -1 if there
// are none.
func (l Listing) newestNumber(prefix string) int {
	newest := -1
	for _, name := range l.names {
		if number, ok := parseNumbered(name, prefix); ok {
			newest = max(newest, number)
		}
	}
	return newest
}
