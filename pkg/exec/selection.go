package exec

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Special values in the list of nodes of a request.
const (
	AllNodes = "all"
	HeadNode = "head"
	// StepsSuffix, after the name of a node or AllNodes, also selects the daemons of further job steps
	// there.
	StepsSuffix = "/*"
)

// Selection selects members of a run by the words of a [Request].
type Selection struct {
	ID     launcher.Identity
	Nodes  signal.Listing // of the nodes' records
	Absent []int          // members that the run goes on without, sorted
	// MayLackNodes reports that the run may go on without nodes that have not joined.
	MayLackNodes bool
}

// WithSteps returns the words that also select the daemons of further job steps on the named nodes.
func WithSteps(nodes []string) []string {
	return textutil.MapSlice(nodes, func(node string) string { return node + StepsSuffix })
}

// SelectMembers returns the sorted member indices that words select: names of nodes, of daemons of
// further job steps (judge/n1), HeadNode or AllNodes, each perhaps with StepsSuffix. It returns an
// error if a named member has not joined or is lost.
func (s Selection) SelectMembers(words []string) (members []int, err error) {
	for _, word := range words {
		name, withSteps := strings.CutSuffix(word, StepsSuffix)
		own, err := s.selectWord(name)
		if err != nil {
			return nil, err
		}
		members = append(members, own...)
		if withSteps {
			members = append(members, s.stepsOn(own)...)
		}
	}
	slices.Sort(members)
	members = slices.Compact(members)
	if len(members) == 0 {
		return nil, errors.New("no node is named")
	}
	return members, nil
}

// selectWord returns the members that a word without a suffix selects.
func (s Selection) selectWord(word string) ([]int, error) {
	switch word {
	case HeadNode:
		return []int{0}, nil
	case AllNodes:
		if missing := s.Nodes.NodesNotIn(record.StateJoined, s.ID.Size); !s.MayLackNodes && len(missing) > 0 {
			return nil, fmt.Errorf("%s have not joined yet", s.ID.FormatNodes(missing, s.ID.HostOf))
		}
		return signal.WithoutNodes(s.Nodes.NodesIn(record.StateJoined), s.Absent), nil
	}
	member, err := s.ID.FindMember(word)
	if err != nil {
		return nil, err
	}
	if !s.Nodes.IsIn(member, record.StateJoined) || slices.Contains(s.Absent, member) {
		return nil, fmt.Errorf("%s is not available: it has not joined, or is lost",
			s.ID.MemberLabel(member, s.ID.HostOf(member)))
	}
	return []int{member}, nil
}

// stepsOn returns the daemons of further job steps on nodes, as far as they have joined.
func (s Selection) stepsOn(nodes []int) (members []int) {
	for _, member := range signal.WithoutNodes(s.Nodes.OfSteps().NodesIn(record.StateJoined), s.Absent) {
		if slices.Contains(nodes, record.NodeOfMember(member, s.ID.Size)) {
			members = append(members, member)
		}
	}
	return members
}

// FindNode returns the node that word names, as seen from the node from. word is a host with or
// without its domain, an address, localhost, or a node index. If a host has several daemons, their
// first node is returned. If no node matches, the error lists the nodes.
func FindNode(word string, from int, team Team) (node int, err error) {
	if ip := net.ParseIP(word); word == "localhost" || ip != nil && ip.IsLoopback() {
		return from, nil
	}
	nodes, hosts := team.Hosts()
	for _, same := range []func(at int) bool{
		func(at int) bool { return strings.EqualFold(hosts[at], word) },
		func(at int) bool {
			return net.ParseIP(word) == nil && launcher.IsSameHost(hosts[at], word)
		},
		func(at int) bool { return strconv.Itoa(nodes[at]) == word },
		func(at int) bool { return net.ParseIP(word) != nil && team.Address(nodes[at]) == word },
	} {
		for at := range nodes {
			if same(at) {
				return nodes[at], nil
			}
		}
	}
	return 0, fmt.Errorf("it is not one of this run's nodes: %s", launcher.HostList(slices.Compact(hosts)))
}
