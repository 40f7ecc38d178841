package signal

import (
	"maps"
	"slices"
	"testing"
	"time"
)

func TestListing(t *testing.T) {
	l := newListing([]string{
		"0002.up", "0000.joined", "0010.up", "0002.joined", "0001.up", "0001.up", "00001.up", "notes.txt",
		"0001.beat.000009", "0001.beat.000010", "0002.beat.000003", "0002.sandbox-beat.000007", "0003.beat",
		"abort.0003", "abort.0001", "abort.x",
	}, 3, time.Now())
	if got := l.Ranks(Up); !slices.Equal(got, []int{1, 2, 10}) {
		t.Errorf("ranks up: %v", got)
	}
	if got := l.Ranks(Done); got != nil {
		t.Errorf("ranks done: %v", got)
	}
	if got := l.Missing(Up, 4); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("missing up: %v", got)
	}
	if got := l.Missing(Joined, 3); !slices.Equal(got, []int{1}) {
		t.Errorf("missing joined: %v", got)
	}
	if got := l.Beats(BeatState); !maps.Equal(got, map[int]int64{1: 10, 2: 3}) {
		t.Errorf("beats: %v", got)
	}
	if got := l.Beats(SandboxBeat); !maps.Equal(got, map[int]int64{2: 7}) {
		t.Errorf("sandboxes' beats: %v", got)
	}
	if got := l.Beats(Up); len(got) != 0 {
		t.Errorf("beats of a state that has none: %v", got)
	}
	if got := l.Aborts(); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("aborts: %v", got)
	}
	if !l.Has("notes.txt") || l.Has("notes") {
		t.Errorf("has: %v", l.names)
	}
}

func TestListingShowsNothing(t *testing.T) {
	var l Listing
	if got := l.Missing(Up, 2); !slices.Equal(got, []int{0, 1}) || l.Has("job") || l.Aborts() != nil {
		t.Errorf("an empty listing shows something: %v", got)
	}
}
