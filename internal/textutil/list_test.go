package textutil_test

import (
	"strconv"
	"testing"

	"github.com/bringupd/bringupd/internal/textutil"
)

// TestMapSlice verifies that the results have the order of the list, and that of an empty list is nil.
func TestMapSlice(t *testing.T) {
	if got := textutil.JoinEach([]int{3, 1, 2}, ", ", strconv.Itoa); got != "3, 1, 2" {
		t.Errorf("got %q", got)
	}
	if got := textutil.MapSlice([]int{}, strconv.Itoa); got != nil {
		t.Errorf("got %q of an empty list", got)
	}
}
