package runs

import (
	"errors"
	"slices"
	"strings"
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

func TestChoose(t *testing.T) {
	// These belong to two services.
	names := []string{"raylet.out", "raylet.err", "gcs_server.out", "raylet.out.1", "raylet.err", "bad\x1b[2J"}
	for _, tc := range []struct {
		name, word, want string
		says             []string
	}{
		{"a name", "raylet.err", "raylet.err", nil},
		{"a name that others begin with", "raylet.out", "raylet.out", nil},
		{"a beginning", "gcs", "gcs_server.out", nil},
		{"one of nothing", "monitor", "", nil},
		{"one of several", "raylet", "", []string{"cannot select a log by raylet", "one of these names: raylet.err, raylet.out, raylet.out.1"}},
		{"one of all", "", "", []string{"bad\ufffd[2J, gcs_server.out"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := chooseName(slices.Clone(names), tc.word)
			var wrong *SelectionError
			if got != tc.want || errors.As(err, &wrong) != (tc.says != nil) {
				t.Fatalf("it is %q, %v; want %q", got, err, tc.want)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is missing in: %v", part, err)
				}
			}
		})
	}
}
