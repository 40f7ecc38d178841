package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestManyInstances verifies that of 1,000 instances those that need attention have a row each,
// that the others share one, and that the page stays small.
func TestManyInstances(t *testing.T) {
	v := NewView(sampleRoles(251, false), nil, time.Time{})
	var got []string
	for _, role := range v.groupByRole() {
		for _, row := range role.Rows {
			lanes := ""
			for _, lane := range row.Lanes {
				lanes += fmt.Sprintf(" %s", lane.State)
			}
			got = append(got, fmt.Sprintf("%d %.9s %s%s", row.Count, row.Instance, row.State, lanes))
		}
		got = append(got, fmt.Sprint(len(role.All), " in the map"))
	}
	again := " waiting starting ready restarting ready restarting ready restarting ready"
	want := []string{
		"1 srv.13 lost waiting starting ready",
		"1 srv.11 unready waiting starting ready unready", "1 srv.211 unready waiting starting ready unready",
		"1 srv.411 unready waiting starting ready unready", "1 srv.611 unready waiting starting ready unready",
		"1 srv.811 unready waiting starting ready unready",
		"1 srv.7 ready" + again, "1 srv.207 ready" + again, "1 srv.407 ready" + again, "1 srv.607 ready" + again,
		"1 srv.807 ready" + again,
		"989 srv.0-6,8 ready waiting starting ready", "1000 in the map",
		"1 trainer.0 ready waiting ready", "0 in the map",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	page := pageOf(t, v)
	if len(page) > 500_000 {
		t.Errorf("the page of 1,000 instances has %d bytes", len(page))
	}
	t.Logf("%d bytes", len(page))
}
