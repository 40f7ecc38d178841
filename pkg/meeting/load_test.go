package meeting

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/meeting/client"
)

// Programs that put without commit, or wait for more and more, are refused once that is too much
// for the node.
func TestProgramsAreBounded(t *testing.T) {
	s := raise(t, 1, 1, false)
	n, program := s.nodes[0], s.rank(0)
	ctx := t.Context()
	if !n.puts.Take(mostData-3, 1, mostData) || !n.open.Take(0, 1, 0) {
		t.Fatal("a load that is empty takes nothing")
	}
	must(t, program.Put(ctx, "a", []byte("abc")))
	want(t, program.Put(ctx, "b", []byte("d")), "cannot put b: ", "or 1 GiB without commit, the most that is accepted")
	must(t, program.Put(ctx, "a", []byte("xyz")))
	must(t, program.Commit(ctx))
	must(t, program.Put(ctx, "b", []byte("d")))

	n.open.items = mostWaits
	_, _, err := program.Get(ctx, "never", "", ceiling)
	want(t, err, "cannot wait for more: the programs of a node wait for 65,536 things")
	n.open.Give(1, 0)
	if _, _, err := program.Get(ctx, "a", "", ceiling); err != nil {
		t.Error(err)
	}
	until(t, "what was waited for is counted no longer", func() (bool, any) {
		n.open.mu.Lock()
		defer n.open.mu.Unlock()
		return n.open.items == mostWaits-1, n.open.items
	})
}

// A program that has gone has put nothing.
func TestLoadIsGivenBack(t *testing.T) {
	s := raise(t, 1, 1, false)
	n := s.nodes[0]
	c, err := client.DialAs(t.Context(), s.paths[0], nil)
	must(t, err)
	for i := range 10 {
		must(t, c.Put(t.Context(), fmt.Sprint("k", i), []byte(strings.Repeat("v", 100))))
	}
	c.Close()
	until(t, "nothing is kept", func() (bool, any) {
		n.puts.mu.Lock()
		defer n.puts.mu.Unlock()
		return n.puts.items == 0 && n.puts.bytes == 0, n.puts.items
	})
}
