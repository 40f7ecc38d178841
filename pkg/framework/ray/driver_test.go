package ray

import (
	"os"
	"strings"
	"testing"
)

// TestAdviseDriver verifies the advice for what failed drivers of the real Ray printed.
func TestAdviseDriver(t *testing.T) {
	const dashboard, start = "enable Ray's dashboard", "leave out ray start"
	plain, enabled := *New(), Cluster{HeadArgs: []string{"--include-dashboard=true"}}
	for _, tc := range []struct {
		cluster    Cluster
		said, want string
	}{
		{plain, "job-submit", dashboard},
		{plain, "job-submit-address", dashboard},
		{enabled, "job-submit-address", ""},
		{plain, "start", start},
		{enabled, "symmetric-run", start},
	} {
		text, err := os.ReadFile("testdata/ray-2.60.0-drivers/" + tc.said + ".log")
		if err != nil {
			t.Fatal(err)
		}
		step := tc.cluster.adviseDriver(strings.Split(string(text), "\n"))
		if tc.want == "" && step != "" || !strings.Contains(step, tc.want) {
			t.Errorf("the advice for %s of %+v is %q, want %q", tc.said, tc.cluster, step, tc.want)
		}
	}
	if step := plain.adviseDriver([]string{"ConnectionError: Could not read 'actors' from GCS."}); step != "" {
		t.Errorf("the advice for another error is %q", step)
	}
}
