package hostile

import (
	"os"
	"testing"
	"time"
)

// TestLatency checks that a call takes at least the set latency.
func TestLatency(t *testing.T) {
	const slow = 30 * time.Millisecond
	a, b, _ := two(t, Knobs{Latency: Latency{Min: slow}})
	put(t, b.path("file"), "")
	begin := time.Now()
	_, err := os.Stat(a.path("file"))
	ok(t, err)
	if took := time.Since(begin); took < slow {
		t.Errorf("a call took %s", took)
	}
}
