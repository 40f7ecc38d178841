package request

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// TestCanceled has orders be read in another order than they were given.
func TestCanceled(t *testing.T) {
	t.Parallel()
	one, other := newID(), newID()
	for _, tc := range []struct {
		name     string
		story    func(n *Node, begin func())
		canceled bool
	}{
		{"not at all", func(_ *Node, begin func()) { begin() }, false},
		{"after its begin", func(n *Node, begin func()) { begin(); n.cancel(one) }, true},
		{"before its begin", func(n *Node, begin func()) { n.cancel(one); begin() }, true},
		{"another", func(n *Node, begin func()) { n.cancel(other); begin(); n.cancel(other) }, false},
		{"begun twice", func(_ *Node, begin func()) { begin(); begin() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newRun(t, 1)
				var begun []context.Context
				n := NewNode(Daemon{
					Dir: dir, Control: dir.Watch(signal.Control, signal.HeadPace), Log: zap.NewNop(), Trail: trail.New(),
					Told: func(error) {}, Within: ceiling, Life: t.Context(), Work: t.Context(),
					Go: func(task func(context.Context)) { go task(t.Context()) },
					Start: func(wanted context.Context, _ process.Spec) (process.Handle, func(), error) {
						begun = append(begun, wanted)
						<-t.Context().Done()
						return nil, nil, context.Canceled
					},
				})
				tc.story(n, func() { n.begin(startRecord{ID: one, Argv: []string{"true"}, Ranks: []int{0}}) })
				synctest.Wait()
				if len(begun) != 1 || (begun[0].Err() != nil) != tc.canceled {
					t.Errorf("%d were begun, canceled: want %t", len(begun), tc.canceled)
				}
			})
		})
	}
}

// An order for the daemon's own program names no path that others could have written.
func TestOwnProgram(t *testing.T) {
	for _, tc := range []struct {
		order startRecord
		want  []string
	}{
		{startRecord{Argv: []string{"why-node", "--stacks"}}, []string{"why-node", "--stacks"}},
		{startRecord{Argv: []string{"why-node", "--stacks"}, Own: true}, []string{process.OwnBinary, "why-node", "--stacks"}},
	} {
		if got := tc.order.argv(); !slices.Equal(got, tc.want) {
			t.Errorf("own %t: %q is started, want %q", tc.order.Own, got, tc.want)
		}
	}
}
