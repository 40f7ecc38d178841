package signal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// FuzzNames builds names and parses them again.
func FuzzNames(f *testing.F) {
	states := []record.State{record.StateJoined, record.StateChecked, record.StateSandboxReady, record.StateServiceUp, record.StateFailed, record.StateSandboxFailed, record.StateHeartbeat, record.StateDone}
	f.Fuzz(func(t *testing.T, someRank, someSize uint32, someState uint8, count int64) {
		size := 1 + int(someSize%(1<<31-1))
		node := int(someRank) % size
		state := states[int(someState)%len(states)]
		name := NodeName(node, size, state)
		if hasNumber(state) {
			count = max(count, 0)
			name = numberedName(node, size, state, count)
		} else {
			count = 0
		}
		if r, s, c, ok := ParseNodeName(name, 0); !ok || r != node || s != state || c != count {
			t.Errorf("node %d of %d in %s, count %d, is %q, which is %d, %q, %d, %t", node, size, state, count, name, r, s, c, ok)
		}
		if r, ok := parseNumbered(name, abortPrefix); ok {
			t.Errorf("%q is an abort of node %d, too", name, r)
		}
		aborted := AbortName(node, size)
		if r, ok := parseNumbered(aborted, abortPrefix); !ok || r != node {
			t.Errorf("the abort of node %d of %d is %q, which is %d, %t", node, size, aborted, r, ok)
		}
		if r, _, _, ok := ParseNodeName(aborted, 0); ok {
			t.Errorf("%q is a name of node %d, too", aborted, r)
		}
		if node > 0 && NodeName(node-1, size, state) >= NodeName(node, size, state) {
			t.Errorf("%q does not sort by node", name)
		}
	})
}

func FuzzNodeName(f *testing.F) {
	f.Fuzz(func(t *testing.T, name string) {
		node, state, count, ok := ParseNodeName(name, 0)
		if !ok {
			if node != 0 || state != "" || count != 0 {
				t.Errorf("ParseNodeName(%q) refuses, and yet answers %d, %q, %d", name, node, state, count)
			}
			return
		}
		digits, _, _ := strings.Cut(name, ".")
		again := fmt.Sprintf("%0*d.%s", len(digits), node, state)
		if hasNumber(state) {
			tail := name[strings.LastIndexByte(name, '.')+1:]
			again += fmt.Sprintf(".%0*d", len(tail), count)
		}
		if again != name || node < 0 || count < 0 {
			t.Errorf("ParseNodeName(%q) = %d, %q, %d, which is the name %q", name, node, state, count, again)
		}
	})
}

func FuzzAbortRank(f *testing.F) {
	f.Fuzz(func(t *testing.T, name string) {
		node, ok := parseNumbered(name, abortPrefix)
		if !ok {
			return
		}
		if again := fmt.Sprintf("%s.%0*d", abortPrefix, len(name)-len(abortPrefix)-1, node); again != name || node < 0 {
			t.Errorf("numbered(%q) = %d, which is the name %q", name, node, again)
		}
	})
}
