package pmi

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// PlaceRanks returns the node of each rank of a command. Each rank in turn is placed on the node
// with the most free slots, among those that the "host" entry of the command's Info allows. It adds
// the ranks to used. The error is NoSpace if there are too few slots, and BadParam if the number of
// ranks is negative or a host is not in hosts.
func PlaceRanks(c Command, hosts []string, slots, used []int, oversubscribe bool) ([]int, error) {
	// Check the request.
	allowed, err := allowedNodes(c.Info["host"], hosts)
	if err != nil {
		return nil, err
	}
	if c.Ranks < 0 {
		return nil, fmt.Errorf("cannot place %d ranks: %w", c.Ranks, BadParam)
	}
	if c.Ranks > MaxRanks {
		return nil, fmt.Errorf("cannot place %d ranks: at most %d are accepted: %w", c.Ranks, MaxRanks, NoSpace)
	}
	// Check that there are enough free slots.
	free, sum, all := make([]int, len(allowed)), 0, 0
	for i, node := range allowed {
		free[i] = slots[node] - used[node]
		sum += max(free[i], 0)
		all += slots[node]
	}
	if sum < c.Ranks && !oversubscribe {
		return nil, fmt.Errorf("cannot place %d %s: only %d of %d slots on %d %s can be used: "+
			"give a higher --slots-per-node=N, or --oversubscribe: %w", c.Ranks, textutil.PluralForm(c.Ranks, "rank"),
			sum, all, len(allowed), textutil.PluralForm(len(allowed), "node"), NoSpace)
	}
	// Assign the ranks.
	var nodes []int
	for i, n := range shareRanks(c.Ranks, free) {
		used[allowed[i]] += n
		nodes = append(nodes, slices.Repeat([]int{allowed[i]}, n)...)
	}
	return nodes, nil
}

// shareRanks returns how many of n ranks each node gets. The result is the same as if each rank in
// turn were placed on the node with the most free slots then, the first of them on a tie.
func shareRanks(n int, free []int) []int {
	above := func(level int) (sum int) {
		for _, f := range free {
			sum += max(f-level, 0)
		}
		return sum
	}
	// In the result, all nodes are filled down to the same level of free slots, and the first of these
	// nodes have one free slot less.
	highest := slices.Max(free)
	level := highest - sort.Search(n, func(down int) bool { return above(highest-down-1) > n })
	given, rest := make([]int, len(free)), n-above(level)
	for i, f := range free {
		if given[i] = max(f-level, 0); f >= level && rest > 0 {
			given[i]++
			rest--
		}
	}
	return given
}

// allowedNodes returns the nodes that a list of hosts ("host" or "host:N") names; all nodes if the
// list is empty.
func allowedNodes(list string, hosts []string) (allowed []int, err error) {
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		host, _, _ := strings.Cut(word, ":")
		node := slices.IndexFunc(hosts, func(known string) bool { return shortHost(known) == shortHost(host) })
		if node < 0 {
			return nil, fmt.Errorf("cannot spawn on %s: it is not a node of this run; the nodes are %s: %w",
				host, textutil.JoinLimited(hosts, 16, ", "), BadParam)
		}
		if !slices.Contains(allowed, node) {
			allowed = append(allowed, node)
		}
	}
	if allowed == nil {
		for node := range hosts {
			allowed = append(allowed, node)
		}
	}
	slices.Sort(allowed)
	return allowed, nil
}

func shortHost(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}

// NodeRanks returns the job's ranks by node, with their run-wide numbers, for the rendezvous.
func (j *Job) NodeRanks() []rendezvous.NodeRanks {
	places := make([]rendezvous.NodeRanks, len(j.Hosts))
	for node, host := range j.Hosts {
		places[node] = rendezvous.NodeRanks{Node: node, Host: host}
	}
	for rank, node := range j.Nodes {
		places[node].Ranks = append(places[node].Ranks, j.FirstNumber+rank)
	}
	return places
}
