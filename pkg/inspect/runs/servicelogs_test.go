package runs

import (
	"testing"
)

// TestRankOf verifies that the directories of a framework's logs are distinguished from all other
// entries.
func TestRankOf(t *testing.T) {
	for _, tc := range []struct {
		name string
		rank int
		ok   bool
	}{
		{"ray-head.d", 0, true},
		{"ray-worker-0003.d", 3, true},
		{"ray-worker-12345.d", 12345, true},
		{"ray-worker-0003.log", 0, false},
		{"ray.d", 0, false},
		{"rayon-worker-0003.d", 0, false},
		{"dask-head.d", 0, false},
		{"ray-\x1b[2J.d", 0, false},
		{".d", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if rank, ok := (ServiceLogs{FrameworkName: "ray"}).parseNodeIndex(tc.name); ok != tc.ok || ok && rank != tc.rank {
				t.Errorf("it is of node %d, %t; want %d, %t", rank, ok, tc.rank, tc.ok)
			}
		})
	}
}
