package deps

import (
	"context"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// PreviousAttempts is the information that earlier attempts of the same launch leave to this one.
// Later attempts come last.
type PreviousAttempts struct {
	UnfitNodes []record.DroppedNode // nodes with a fault, which only stand by
	LostNodes  []record.DroppedNode // nodes whose daemons were lost in the last attempt
	// Failures are the failures of all earlier attempts.
	Failures []record.Failure
}

// causesTimeout is the timeout for reading the result of the job's previous start.
const causesTimeout = 2 * time.Second

// EarlierFailures returns the failures of the earlier attempts of this launch. If the job was
// restarted by its launcher, it adds the cause of the last attempt before that, if it can be read.
func (c *Config) EarlierFailures() []record.Failure {
	if c.Identity.Restart == 0 {
		return c.Previous.Failures
	}
	place := c.RunLocation()
	last := c.Identity
	last.Restart, last.Attempt = last.Restart-1, 0
	place.Run = last.RunName()
	ctx, cancel := context.WithTimeoutCause(context.Background(), causesTimeout, health.ErrDeadline)
	defer cancel()
	result, err := ctxutil.CallBounded(ctx, 0, func() (record.Result, error) { return place.LastResult(ctx) })
	if err != nil || result.Cause == nil {
		return c.Previous.Failures
	}
	return append(slices.Clip(c.Previous.Failures), *result.Cause)
}

// AllUnfitNodes returns the sorted indices of the nodes that the next attempt must not use if this
// one ends with the given failures.
func (e PreviousAttempts) AllUnfitNodes(failures []record.Failure) []int {
	nodes := health.UnfitNodes(failures...)
	for _, dropped := range e.UnfitNodes {
		nodes = append(nodes, dropped.NodeIndex)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// AfterAttempt returns what an attempt that ends with the given failures leaves to the next one.
func (e PreviousAttempts) AfterAttempt(failures []record.Failure, hostOf func(node int) string) PreviousAttempts {
	why := func(node int) string {
		for _, failure := range failures {
			if failure.NodeIndex == node || slices.Contains(failure.LostNodes, node) {
				return failure.Message
			}
		}
		return ""
	}
	next := PreviousAttempts{UnfitNodes: slices.Clone(e.UnfitNodes), Failures: slices.Concat(e.Failures, failures)}
	for _, node := range e.AllUnfitNodes(failures) {
		if !slices.ContainsFunc(e.UnfitNodes, func(d record.DroppedNode) bool { return d.NodeIndex == node }) {
			next.UnfitNodes = append(next.UnfitNodes, record.DroppedNode{NodeIndex: node, Host: hostOf(node), Reason: why(node)})
		}
	}
	for _, node := range health.LostNodes(failures...) {
		next.LostNodes = append(next.LostNodes, record.DroppedNode{NodeIndex: node, Host: hostOf(node), Reason: why(node)})
	}
	return next
}
