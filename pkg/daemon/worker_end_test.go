package daemon

import "testing"

// TestChooseEnd verifies who decides about the end of the run, as a worker sees it.
func TestChooseEnd(t *testing.T) {
	byHead, byPeer, byBoth := []int{0}, []int{3}, []int{0, 3}
	for _, tc := range []struct {
		name          string
		isOrderly     bool
		aborts        []int
		heard, parted bool
		want          endSource
	}{
		{"nothing", false, nil, true, false, noEnd},
		{"nothing of a lost head", false, nil, false, true, noEnd},
		{"orderly", true, nil, true, false, orderlyEnd},
		{"orderly, of a head that is lost now", true, nil, false, true, orderlyEnd},
		{"orderly, and a peer with a hanging mount", true, byPeer, true, true, orderlyEnd},
		{"abort of the head", false, byHead, true, false, abortByHead},
		{"abort of the head after its orderly end", true, byHead, true, false, abortByHead},
		{"abort of the head and of a peer", false, byBoth, false, true, abortByHead},
		{"abort of a peer", false, byPeer, true, false, noEnd},
		{"abort of a peer, and the head is lost", false, byPeer, false, false, abortByPeer},
		{"abort of a peer, and this link has ended, too", false, byPeer, true, true, abortOfParts},
	} {
		if got := chooseEnd(tc.isOrderly, tc.aborts, tc.heard, tc.parted); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
