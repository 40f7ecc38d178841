package rendezvous

import (
	"testing"
)

// TestProgramsAreBounded verifies that programs that put without a commit, or wait for more and
// more, are refused above the node's limits.
func TestProgramsAreBounded(t *testing.T) {
	s := raise(t, 1, 1, false)
	n, program := s.nodes[0], s.rank(0)
	ctx := t.Context()
	if !n.putQuota.Reserve(maxDataSize-3, 1, maxDataSize) || !n.waitQuota.Reserve(0, 1, 0) {
		t.Fatal("a load that is empty takes nothing")
	}
	must(t, program.PutValue(ctx, "a", []byte("abc")))
	want(t, program.PutValue(ctx, "b", []byte("d")), "cannot put b: ", "or 1 GiB without commit, the maximum")
	must(t, program.PutValue(ctx, "a", []byte("xyz")))
	must(t, program.CommitValues(ctx))
	must(t, program.PutValue(ctx, "b", []byte("d")))

	n.waitQuota.items = maxWaits
	_, _, err := program.GetValue(ctx, "never", "", ceiling)
	want(t, err, "cannot wait: the programs of this node already have 65,536 waits")
	n.waitQuota.Release(1, 0)
	if _, _, err := program.GetValue(ctx, "a", "", ceiling); err != nil {
		t.Error(err)
	}
	until(t, "what was waited for is counted no longer", func() (bool, any) {
		n.waitQuota.mu.Lock()
		defer n.waitQuota.mu.Unlock()
		return n.waitQuota.items == maxWaits-1, n.waitQuota.items
	})
}
