package daemon

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
)

// TestLargeLog runs a driver that prints more than is usual: the job logs this once, and all output
// is kept.
func TestLargeLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		large int64
		told  int
	}{
		{"large", 4 << 10, 1},
		{"as large as usual", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				j := newJob(t, 1, "for i in 1 2 3 4 5 6 7 8 9; do printf '%01023d\n' $i; sleep 0.02; done").
					all(func(c *deps.Config) { c.LargeLogBytes = tc.large }).start()
				j.expect(0)
				if told := strings.Count(j.said(), "a log has become large"); told != tc.told {
					t.Errorf("it is told %d times, not %d: %s", told, tc.told, j.said())
				}
				if tc.told > 0 && !strings.Contains(j.said(), "/logs/driver.log") {
					t.Errorf("nobody says which log: %s", j.said())
				}
			})
		})
	}
}
