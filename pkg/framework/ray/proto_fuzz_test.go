package ray

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// allocated returns the number of bytes that the process allocates while f runs.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 3 { // other goroutines allocate, too, and the first call compiles patterns
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

func FuzzRayReplies(f *testing.F) {
	for _, name := range []string{"alive", "dead", "twice", "selected", "session", "nokey", "health"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		var nodes []tableEntry
		var err error
		took := allocated(func() {
			nodes, err = parseNodesReply(reply)
			_, _ = parseSession(reply)
			_, _ = parseHealth(reply)
		})
		// A node entry of two bytes takes some hundred bytes in a growing slice.
		if most := uint64(64<<10 + 1024*len(reply)); took > most {
			t.Errorf("%d bytes make %d, and %d is the most", len(reply), took, most)
		}
		if err != nil && nodes != nil {
			t.Errorf("nodes with the error %v", err)
		}
		if !slices.IsSortedFunc(nodes, compareNameAndStart) {
			t.Errorf("nodes in no order: %+v", nodes)
		}
		for _, node := range nodes {
			checkEntry(t, node)
		}
		if err := compareMembers([]expectedNode{{Name: "job.0-0",
			MinResources: map[string]float64{"CPU": 1}}}, nodes); err != nil && err.Error() == "" {
			t.Error("an error that says nothing")
		}
	})
}

// checkEntry verifies that a node's entry can be printed in a message.
func checkEntry(t *testing.T, node tableEntry) {
	t.Helper()
	for _, text := range []string{node.Name, node.Host, node.Address, node.DeathReason} {
		// Each invalid byte becomes three.
		if !utf8.ValidString(text) || len(text) > 4<<10 {
			t.Errorf("%d bytes of text: %q", len(text), text)
		}
	}
}

func TestRayNodesBounded(t *testing.T) {
	empty := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nil)
	full := bytes.Repeat(empty, maxTableNodes)
	if nodes, err := parseNodesReply(full); err != nil || len(nodes) != maxTableNodes {
		t.Errorf("the most nodes are refused: %d, %v", len(nodes), err)
	}
	if nodes, err := parseNodesReply(append(full, empty...)); err == nil {
		t.Errorf("%d nodes are taken", len(nodes))
	}
}
