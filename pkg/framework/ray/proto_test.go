package ray

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// recorded returns an answer of a real GCS.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "ray-2.60.0-"+name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseNodesReply(t *testing.T) {
	node := func(name string, alive bool, reason string) tableEntry {
		return tableEntry{
			Name: name, Host: "vm", Address: "192.0.2.2", Alive: alive, DeathReason: reason,
			Resources: map[string]float64{"CPU": 1, "node:192.0.2.2": 1, "object_store_memory": 8e7,
				"slurm_managed_ray_cluster": 1},
		}
	}
	const asked = `received SIGTERM`
	const lost = "health check failed due to missing too many heartbeats"
	tests := []struct {
		name string
		want []tableEntry
	}{
		{"alive", []tableEntry{node("job.0-0", true, ""), node("job.0-1", true, ""), node("job.0-2", true, "")}},
		{"selected", []tableEntry{node("job.0-1", true, "")}},
		{"twice", []tableEntry{node("job.0-0", true, ""), node("job.0-1", true, ""),
			node("job.0-2", true, ""), node("job.0-2", true, "")}},
		{"dead", []tableEntry{node("job.0-0", true, ""), node("job.0-1", false, asked),
			node("job.0-2", false, lost), node("job.0-2", true, "")}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseNodesReply(recorded(t, tc.name))
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range got {
				if n.Port < 1024 || n.StartedMS < 1.7e12 || n.Resources["memory"] < 1e9 {
					t.Errorf("node %d is %+v", i, n)
				}
				delete(n.Resources, "memory")
				delete(n.Resources, "node:__internal_head__")
			}
			different := cmpopts.IgnoreFields(tableEntry{}, "Port", "StartedMS")
			if diff := cmp.Diff(tc.want, got, different); diff != "" {
				t.Error(diff)
			}
		})
	}
}
