package signal

import (
	"fmt"
	"math"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// instanceCount is the information in a name in NodesDir that has a number about a generation of an
// instance on a node: the step of its slowest rank, or the changes between idle and active.
type instanceCount struct {
	record.InstanceMark // its State is that of a [StepName] or an [IdleName]
	number              int64
}

func (c instanceCount) name(size int) string {
	return fmt.Sprintf("%s.%06d", InstanceName(c.InstanceMark, size), c.number)
}

// InstanceStep is the step that a node has published for a generation of an instance.
type InstanceStep struct {
	Node, Instance, Generation int
	NodeStep                   // of the slowest rank of the instance on the node
}

// InstanceStepName returns the name in NodesDir for the step that the slowest rank of an instance on
// a node has reached: 0007.i0042.g0.step-3.020000 for step 20.
func InstanceStepName(s InstanceStep, size int) string {
	mark := record.InstanceMark{Node: s.Node, Instance: s.Instance, Generation: s.Generation, State: record.InstanceState(stepState(s.Rank))}
	return instanceCount{mark, int64(math.Round(s.Step * stepFraction))}.name(size)
}

// InstanceIdleName returns the name in NodesDir of the nth change between idle and active processes
// of a generation of an instance on a node: they are idle if n is odd.
func InstanceIdleName(node, size, instance, generation, n int) string {
	mark := record.InstanceMark{Node: node, Instance: instance, Generation: generation, State: record.InstanceState(record.StateIdle)}
	return instanceCount{mark, int64(n)}.name(size)
}

// hasInstanceNumber reports whether a name of an instance with that state has a number that is not
// one of a change of readiness.
func hasInstanceNumber(state record.InstanceState) bool {
	return record.State(state) == record.StateIdle || IsStepState(record.State(state))
}

// parseInstanceCount parses a name of [InstanceStepName] or [InstanceIdleName].
func parseInstanceCount(name string, size int) (c instanceCount, ok bool) {
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return c, false
	}
	c.InstanceMark, ok = parseInstance(strings.Split(name[:at], "."), size)
	number, isNumber := parseNumber(name[at+1:], 63)
	c.number = number
	ok = ok && isNumber && hasInstanceNumber(c.State) && name == c.name(max(size, sizeOfWidth(strings.IndexByte(name, '.'))))
	return c, ok
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
		step := InstanceStep{c.Node, c.Instance, c.Generation, NodeStep{rank, float64(c.number) / stepFraction}}
		known, there := newest[place{c.Node, c.Instance}]
		// a name that could not be removed has a lower step, or an earlier generation
		isNewer := step.Generation > known.Generation || step.Generation == known.Generation && (step.Step > known.Step || step.Step == known.Step && rank < known.Rank)
		if !there || isNewer {
			newest[place{c.Node, c.Instance}] = step
		}
	}
	for _, step := range newest {
		steps = append(steps, step)
	}
	return steps
}

// IdleInstanceNodes returns the sorted indices of the nodes on which all processes of a generation of
// an instance are idle, in a listing of NodesDir.
func (l Listing) IdleInstanceNodes(instance, generation int) (idle []int) {
	newest := make(map[int]int64) // by node
	for _, c := range l.instanceCounts {
		if c.Instance == instance && c.Generation == generation && record.State(c.State) == record.StateIdle {
			newest[c.Node] = max(newest[c.Node], c.number)
		}
	}
	for node, n := range newest {
		if n%2 == 1 {
			idle = append(idle, node)
		}
	}
	return sortUnique(idle)
}

// HangName returns the name in ControlDir of the failure of a generation of an instance that hangs,
// which the head gives to one of its nodes.
func HangName(instance, generation, node int) string {
	return orderName(instance, generation, fmt.Sprintf("hang-%d", node))
}
