package hostile

import (
	"os"
	"testing"
	"time"
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

// TestNegativeEnds checks that a cached missing name expires.
func TestNegativeEnds(t *testing.T) {
	const short = 50 * time.Millisecond
	a, b, _ := two(t, Knobs{Negative: short})
	begin := time.Now()
	_, err := os.Stat(a.path("late"))
	fails(t, "a name before it is there", err, os.ErrNotExist)
	put(t, b.path("late"), "words")
	until(t, "the name is found", func() bool {
		_, err := os.Stat(a.path("late"))
		return err == nil
	})
	if took := time.Since(begin); took < short {
		t.Errorf("it was found after %s", took)
	}
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

// TestListingEnds checks that a cached listing expires.
func TestListingEnds(t *testing.T) {
	const short = 50 * time.Millisecond
	a, b, _ := two(t, Knobs{Listing: short})
	begin := time.Now()
	lists(t, a.at)
	put(t, b.path("one"), "")
	until(t, "the name is listed", func() bool {
		entries, err := os.ReadDir(a.at)
		return err == nil && len(entries) == 1
	})
	if took := time.Since(begin); took < short {
		t.Errorf("it was listed after %s", took)
	}
}

// TestAttributes checks that a mount caches the attributes of a file.
func TestAttributes(t *testing.T) {
	a, b, _ := two(t, Knobs{Attributes: long})
	put(t, b.path("file"), "words")
	size := func(m *Mount) int64 {
		info, err := os.Stat(m.path("file"))
		ok(t, err)
		return info.Size()
	}
	if got := size(a); got != 5 {
		t.Fatalf("it has %d bytes", got)
	}
	put(t, b.path("file"), "more words")
	if got := size(a); got != 5 {
		t.Errorf("it has %d bytes, want the 5 it had", got)
	}
	if got := size(b); got != 10 {
		t.Errorf("the other mount says %d bytes, want 10", got)
	}
	ok(t, os.Remove(b.path("file")))
	if got := size(a); got != 5 {
		t.Errorf("it has %d bytes, want the 5 it had before its end", got)
	}
}
