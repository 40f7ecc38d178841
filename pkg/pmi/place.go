package pmi

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Place returns on which nodes the ranks of a command are to run: each in turn on the one that has the most free slots of those that the
// command's Info allows, by "host". It counts them into used. Its error is NoSpace, or BadParam for a number below 0 or a host that is not one of hosts.
func Place(c Command, hosts []string, slots, used []int, oversubscribe bool) ([]int, error) {
	allowed, err := allowedNodes(c.Info["host"], hosts)
	if err != nil {
		return nil, err
	}
	if c.Ranks < 0 {
		return nil, fmt.Errorf("cannot place %d ranks: %w", c.Ranks, BadParam)
	}
	if c.Ranks > MostRanks {
		return nil, fmt.Errorf("cannot place %d ranks: at most %d are accepted: %w", c.Ranks, MostRanks, NoSpace)
	}
	free, sum := make([]int, len(allowed)), 0
	for i, node := range allowed {
		free[i] = slots[node] - used[node]
		sum += max(free[i], 0)
	}
	if sum < c.Ranks && !oversubscribe {
		return nil, fmt.Errorf("cannot place %d %s: %s free of %d on %d %s: give --slots-per-node=N with a higher number, or --oversubscribe: %w",
			c.Ranks, prose.Noun(c.Ranks, "rank"), count(sum, "slot is", "slots are"), total(slots, allowed), len(allowed), prose.Noun(len(allowed), "node"), NoSpace)
	}
	var nodes []int
	for i, n := range share(c.Ranks, free) {
		used[allowed[i]] += n
		nodes = append(nodes, slices.Repeat([]int{allowed[i]}, n)...)
	}
	return nodes, nil
}

// share returns how many of n ranks each node gets if they are given out one by one, each to the
// node that has the most free slots then, and of several such to the first.
func share(n int, free []int) []int {
	above := func(level int) (sum int) {
		for _, f := range free {
			sum += max(f-level, 0)
		}
		return sum
	}
	// In the end all nodes are down to a level, and the first of these have one slot less.
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

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func total(numbers, at []int) (sum int) {
	for _, i := range at {
		sum += numbers[i]
	}
	return sum
}

// allowedNodes are those that a list of hosts, as host or host:N, names; all where it is empty.
func allowedNodes(list string, hosts []string) (allowed []int, err error) {
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		host, _, _ := strings.Cut(word, ":")
		node := slices.IndexFunc(hosts, func(known string) bool { return short(known) == short(host) })
		if node < 0 {
			return nil, fmt.Errorf("cannot spawn on %s: the nodes are %s: %w", host, prose.List(hosts, 16, ", "), BadParam)
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

// short is a host's name without its domain.
func short(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}

// Places are the job's ranks for who meets, by the numbers that they have in the run.
func (j *Job) Places() []meeting.Place {
	places := make([]meeting.Place, len(j.Hosts))
	for node, host := range j.Hosts {
		places[node] = meeting.Place{Node: node, Host: host}
	}
	for rank, node := range j.Nodes {
		places[node].Ranks = append(places[node].Ranks, j.First+rank)
	}
	return places
}
