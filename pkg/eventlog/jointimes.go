package eventlog

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// JoinTimes records when the head first saw each node's answer to the round-trip probe of the
// shared file system. It is not safe for concurrent use.
type JoinTimes struct {
	probePublished time.Time // when the probe was published
	arrivalOrder   []int     // node indices, in order of arrival
	seenAt         map[int]time.Time
}

// NewJoinTimes returns the [JoinTimes] of a probe that was published at the given time.
func NewJoinTimes(published time.Time) *JoinTimes {
	return &JoinTimes{probePublished: published, seenAt: make(map[int]time.Time)}
}

// AddListing records the nodes that were found by a listing at time at.
func (a *JoinTimes) AddListing(nodes []int, at time.Time) {
	for _, node := range nodes {
		if _, there := a.seenAt[node]; !there && node != 0 {
			a.seenAt[node] = at
			a.arrivalOrder = append(a.arrivalOrder, node)
		}
	}
}

// SampleNodes returns up to n nodes, evenly distributed by time of arrival, including the first and
// the last.
func (a *JoinTimes) SampleNodes(n int) []int {
	if len(a.arrivalOrder) <= n {
		return slices.Clone(a.arrivalOrder)
	}
	nodes := make([]int, 0, n)
	for i := range n {
		nodes = append(nodes, a.arrivalOrder[i*(len(a.arrivalOrder)-1)/(n-1)])
	}
	return nodes
}

// RoundTrip returns the probe's round trip to one node, less the node's own processing time. ok is
// false if the node came late, because the result is meaningless then.
func (a *JoinTimes) RoundTrip(node int, joined record.Joined) (record.RoundTrip, bool) {
	took := a.seenAt[node].Sub(a.probePublished) - joined.TimeToAnswer
	return record.RoundTrip{NodeIndex: node, Took: max(0, took)}, joined.HasWaited
}
