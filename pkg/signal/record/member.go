package record

// The daemons of a run are numbered by member indices. That of a daemon of the run's own job step is
// the index of its node. Each further step, which has daemons on some of the same nodes, follows with
// a range of its own: of 8 nodes, 8 to 15 are the daemons of the first further step on nodes 0 to 7.

// MemberIndex returns the member index of a step's daemon on a node, in a run of size nodes. The
// step is 0 for the run's own, and counted from 1 for the others.
func MemberIndex(node, step, size int) int { return step*size + node }

// NodeOfMember returns the index of the node of a member.
func NodeOfMember(member, size int) int { return member - size*StepOfMember(member, size) }

// StepOfMember returns the number of the step of a member: 0 for the run's own, and if the size is
// unknown, which is 0.
func StepOfMember(member, size int) int {
	if size <= 0 {
		return 0
	}
	return member / size
}
