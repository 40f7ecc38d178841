package signal

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NoInstance is the instance of a [StateName] or a [NodeStep] that is not about an instance of a role.
const NoInstance = -1

// StateName is the information in a name in NodesDir: a member, or a generation of an instance on a
// node, has reached a state.
type StateName struct {
	Member               int
	Instance, Generation int // NoInstance and 0 if the state is that of the member itself
	State                record.State
	Number               int64 // 0 if the name has none
}

// ParseStateName parses a name in NodesDir of a job of size nodes. It accepts no second name for the
// same state, such as one with another width. If size is 0, which means unknown, a node index may have
// any width, and there are no members of further steps.
func ParseStateName(name string, size int) (n StateName, ok bool) {
	member, rest, _ := strings.Cut(name, ".")
	word, rest, hasMore := strings.Cut(rest, ".")
	n.Instance = NoInstance
	if instance, is := parseLettered(word, "i", 4); is {
		n.Instance = instance
		word, rest, _ = strings.Cut(rest, ".")
		if n.Generation, is = parseLettered(word, "g", 1); !is {
			return StateName{}, false
		}
		word, rest, hasMore = strings.Cut(rest, ".")
	}
	n.State = record.State(word)
	n.Member, ok = parseMember(member, size)
	if ok && hasMore {
		n.Number, ok = parsePadded(rest, numberWidth, 63)
	}
	// A state without a number of its own may have that of a kind, or of a change of readiness.
	hasOther := n.State == record.StateChecked || n.Instance != NoInstance && n.Number > 0
	if !ok || word == "" || hasNumber(n.State) != hasMore && (!hasMore || !hasOther) {
		return StateName{}, false
	}
	return n, true
}

// numberWidth is the minimum number of digits of the number in a name.
const numberWidth = 6

// parsePadded parses a number of up to the given number of bits that was written with at least width
// digits. It accepts no other way to write that number.
func parsePadded(digits string, width, bits int) (int64, bool) {
	n, ok := parseNumber(digits, bits)
	return n, ok && len(digits) >= width && (len(digits) == width || digits[0] != '0')
}

func parseLettered(text, letter string, width int) (int, bool) {
	digits, is := strings.CutPrefix(text, letter)
	if !is {
		return 0, false // without the costs of an error
	}
	number, ok := parsePadded(digits, width, 31)
	return int(number), ok
}

// IndexWidth returns the number of digits of node indices in a job of size nodes, with leading
// zeros so that names sort by index: at least four.
func IndexWidth(size int) int {
	width := 4
	for rest := size - 1; rest >= 10_000; rest /= 10 {
		width++
	}
	return width
}

// NodeName returns the name in NodesDir for the state of a node, or of another member: see
// [record.MemberIndex].
func NodeName(member, size int, state record.State) string {
	return memberText(member, size) + "." + string(state)
}

// memberText returns the index of a node as it is in names: with leading zeros, and, for a daemon of
// a further step, with the number of the step, as in 0007-1.
func memberText(member, size int) string {
	width := IndexWidth(size)
	if step := record.StepOfMember(member, size); step > 0 {
		return fmt.Sprintf("%0*d-%d", width, record.NodeOfMember(member, size), step)
	}
	return fmt.Sprintf("%0*d", width, member)
}

// parseMember parses a text of [memberText].
func parseMember(text string, size int) (member int, ok bool) {
	digits, number, isOfStep := strings.Cut(text, "-")
	member, ok = parseIndex(digits)
	if size > 0 {
		ok = ok && member < size && len(digits) == IndexWidth(size)
	}
	if !ok || !isOfStep {
		return member, ok
	}
	step, ok := parsePadded(number, 1, 16)
	return record.MemberIndex(member, int(step), size), ok && step > 0 && size > 0
}

func numberedName(node, size int, state record.State, number int64) string {
	return addNumber(NodeName(node, size, state), number)
}

func addNumber(name string, number int64) string {
	return fmt.Sprintf("%s.%0*d", name, numberWidth, number)
}

// ServiceUpState returns the state for a node with a running service. The node has had its present
// place in the team since the given generation.
func ServiceUpState(generation int) record.State {
	if generation == 0 {
		return record.StateServiceUp
	}
	return record.State(fmt.Sprintf("%s-%d", record.StateServiceUp, generation))
}

// CheckedName returns the name in NodesDir for a node that has passed its checks. The number kind
// is the same for all nodes of one kind; 0 means that the kind is unknown.
func CheckedName(node, size int, kind int64) string {
	if kind == 0 {
		return NodeName(node, size, record.StateChecked)
	}
	return numberedName(node, size, record.StateChecked, kind)
}

// UnfitEventNumber is the number of the first event that makes one of a node's GPUs unfit for
// another job. So the name alone shows it, however many other events there are.
const UnfitEventNumber = 0

// EventName returns the name in NodesDir of a node's nth event, or of UnfitEventNumber.
func EventName(node, size, n int) string {
	return numberedName(node, size, record.StateEvent, int64(n))
}

// SlotsName returns the name in NodesDir for the number of ranks that a node can have.
func SlotsName(node, size, slots int) string {
	return numberedName(node, size, record.StateSlots, int64(slots))
}

// instanceName returns the name in NodesDir for a state of a generation of an instance on a node, or of
// the node itself if the instance is NoInstance.
func instanceName(node, size, instance, generation int, state record.State) string {
	if instance == NoInstance {
		return NodeName(node, size, state)
	}
	return fmt.Sprintf("%s.i%04d.g%d.%s", memberText(node, size), instance, generation, state)
}

// InstanceName returns the name in NodesDir for m, in a job of size nodes: 0007.i0042.g0.ready, or
// 0007.i0042.g0.ready.000004 for a later change.
func InstanceName(m record.InstanceMark, size int) string {
	name := instanceName(m.Node, size, m.Instance, m.Generation, record.State(m.State))
	if m.Change == 0 {
		return name
	}
	return addNumber(name, int64(m.Change))
}

// IdleName returns the name in NodesDir of the nth change between idle and active processes of a
// generation of an instance, or of a node's ranks: they are idle if n is odd.
func IdleName(node, size, instance, generation, n int) string {
	return addNumber(instanceName(node, size, instance, generation, record.StateIdle), int64(n))
}

// NodeStep is the step that the slowest rank of a node has reached.
type NodeStep struct {
	Node, Instance, Generation int // the slowest of an instance on the node, unless that is NoInstance
	Rank                       int // -1 for the driver, and for the process of an instance that has only one
	Step                       float64
}

// StepName returns the name in NodesDir for a step, in thousandths: 0007.i0042.g0.step-3.020000 for
// step 20.
func StepName(s NodeStep, size int) string {
	name := instanceName(s.Node, size, s.Instance, s.Generation, stepState(s.Rank))
	return addNumber(name, int64(math.Round(s.Step*stepFraction)))
}

// stepFraction is the number of units of a step in a name.
const stepFraction = 1000

func stepState(rank int) record.State {
	if rank < 0 {
		return record.StateStep
	}
	return record.State(fmt.Sprintf("%s-%d", record.StateStep, rank))
}

// IsStepState reports whether a state is that of a [StepName].
func IsStepState(state record.State) bool {
	_, is := parseStepState(state)
	return is
}

// parseStepState returns the rank of a state in a StepName, or -1 for the driver.
func parseStepState(state record.State) (rank int, ok bool) {
	if state == record.StateStep {
		return -1, true
	}
	return parseLettered(string(state), string(record.StateStep)+"-", 1)
}

// hasNumber reports whether a name of that state must end with a number.
func hasNumber(state record.State) bool {
	return state == record.StateHeartbeat || state == record.StateEvent || state == record.StateSlots ||
		isCount(state)
}

// isCount reports whether the number of a state is a step, or counts changes of idleness.
func isCount(state record.State) bool { return state == record.StateIdle || IsStepState(state) }

// ParseServiceUpState reports whether the state means that a service is up, and since which
// generation of the team in its place.
func ParseServiceUpState(state record.State) (generation int, ok bool) {
	if state == record.StateServiceUp {
		return 0, true
	}
	return parseLettered(string(state), string(record.StateServiceUp)+"-", 1)
}

// parseNumbered returns the number in a name in ControlDir, if its first part is kind.
func parseNumbered(name, kind string) (int, bool) {
	what, digits, _ := strings.Cut(name, ".")
	if what != kind {
		return 0, false
	}
	return parseIndex(digits)
}

func parseIndex(digits string) (int, bool) {
	index, ok := parseNumber(digits, 31)
	return int(index), ok && len(digits) >= IndexWidth(1)
}

// parseNumber parses a number of up to the given number of bits. It accepts only digits, so that
// two names never have the same meaning.
func parseNumber(digits string, bits int) (int64, bool) {
	n, err := strconv.ParseUint(digits, 10, bits)
	return int64(n), err == nil
}
