package signal

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
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

// nodesNames are the names in Nodes of a job of size nodes, each of which has
// joined, is up and beats, in the order of no file system.
func nodesNames(size int) []string {
	var names []string
	for rank := range size {
		names = append(names, NodeName(rank, size, Joined), NodeName(rank, size, Up), beatName(rank, size, BeatState, 1000))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// BenchmarkListing is what becomes of the names that a look has shown: the
// listing, and the questions that the head asks of Nodes, or a worker of Control.
func BenchmarkListing(b *testing.B) {
	for _, size := range []int{1024, 4096} {
		b.Run("head-"+strconv.Itoa(size), func(b *testing.B) {
			shown := nodesNames(size)
			names := make([]string, len(shown))
			b.ReportAllocs()
			for b.Loop() {
				copy(names, shown)
				l := newListing(names, 1, time.Time{})
				failed := len(l.Ranks(Failed)) + len(l.Ranks(SandboxFailed))
				beats, joined := l.Beats(BeatState), l.Ranks(Joined)
				failed += len(l.Ranks(Done)) + len(l.Ranks(Failed))
				if failed != 0 || len(beats) != size || len(joined) != size || l.Missing(Up, size) != nil {
					b.Fatal(failed, len(beats), len(joined))
				}
			}
		})
	}
	b.Run("worker", func(b *testing.B) {
		shown := []string{NameJob, NameHead, beatName(0, 4096, BeatState, 1000), NameGo}
		names := make([]string, len(shown))
		b.ReportAllocs()
		for b.Loop() {
			copy(names, shown)
			l := newListing(names, 1, time.Time{})
			if l.Beats(BeatState)[0] != 1000 || l.Aborts() != nil || l.Has(NameDrain) || !l.Has(NameHead) {
				b.Fatal(names)
			}
		}
	})
}
