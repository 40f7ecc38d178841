package launcher

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// FindNode returns the index of the node that word selects among size nodes: the index itself or,
// if there is no such index, a host with exactly one daemon. hostOf returns a node's host, or an
// empty string if it is unknown. The error states what would be accepted.
func FindNode(word string, size int, hostOf func(rank int) string) (int, error) {
	number, err := strconv.Atoi(word)
	if err == nil && 0 <= number && number < size {
		return number, nil
	}
	var on []int
	for rank := range size {
		if word != "" && hostOf(rank) == word {
			on = append(on, rank)
		}
	}
	switch len(on) {
	case 0:
		return 0, fmt.Errorf("there is no node %q: give a number of 0 to %d, or a host", word, size-1)
	case 1:
		return on[0], nil
	default:
		return 0, fmt.Errorf("%s has %d daemons: give the number, one of %v", word, len(on), on)
	}
}

// FindMember returns the index of the member that word selects: a node, as in [FindNode], or, after
// the name of a further step and a slash, the daemon of that step on a node, such as judge/n1.
func (id Identity) FindMember(word string) (int, error) {
	step, node, isOfStep := strings.Cut(word, "/")
	if !isOfStep {
		return FindNode(word, id.Size, id.HostOf)
	}
	number := 1 + slices.Index(id.Steps, step)
	if number == 0 {
		return 0, fmt.Errorf("there is no step %q: the steps are %s", step, strings.Join(id.Steps, ", "))
	}
	index, err := FindNode(node, id.Size, id.HostOf)
	return record.MemberIndex(index, number, id.Size), err
}
