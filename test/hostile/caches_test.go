package hostile

import (
	"os"
	"testing"
)

// TestNegative checks that a mount caches a missing name, but not in listings.
func TestNegative(t *testing.T) {
	a, b, _ := two(t, Knobs{Negative: long})
	_, err := os.Stat(a.path("late"))
	fails(t, "a name before it is there", err, os.ErrNotExist)
	put(t, b.path("late"), "words")
	for range 3 {
		_, err = os.Stat(a.path("late"))
		fails(t, "a name that was once missing", err, os.ErrNotExist)
		_, err = os.ReadFile(a.path("late"))
		fails(t, "its content", err, os.ErrNotExist)
	}
	lists(t, a.at, "late")
	put(t, b.path("unasked"), "words")
	has(t, a.path("unasked"), "words")
	// A mount knows the names that it creates itself.
	put(t, a.path("late"), "others")
	has(t, a.path("late"), "others")
	has(t, b.path("late"), "others")
}

// TestListing checks that a mount caches a directory's listing, with its own changes.
func TestListing(t *testing.T) {
	a, b, _ := two(t, Knobs{Listing: long})
	lists(t, a.at)
	put(t, b.path("one"), "words")
	lists(t, a.at)
	has(t, a.path("one"), "words") // only the listing is stale
	put(t, a.path("own"), "")
	lists(t, a.at, "one", "own")
	ok(t, os.Remove(b.path("one")))
	lists(t, a.at, "one", "own")
	ok(t, os.Mkdir(b.path("two"), 0o700))
	lists(t, a.path("two"))
	set(t, a, Knobs{})
	lists(t, a.at, "own", "two")
}
