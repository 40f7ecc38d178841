package launcher

import (
	"testing"
	"time"
)

func TestDescribeGrace(t *testing.T) {
	for _, tc := range []struct {
		launcher      Launcher
		actual, given time.Duration
		want          string
	}{
		{LauncherSlurm, 100 * time.Second, 100 * time.Second, "1m40s (--driver-grace)"},
		{LauncherSlurm, 14960 * time.Millisecond, 100 * time.Second,
			"15s of its --driver-grace=1m40s, because Slurm kills the job 30s after TERM (KillWait)"},
		{LauncherPBS, 5 * time.Second, 10 * time.Second,
			"5s of its --driver-grace=10s, because PBS kills the job 10s after TERM (kill_delay of the queue)"},
		{LauncherLocal, 5 * time.Second, 10 * time.Second, "5s of its --driver-grace=10s"},
	} {
		if got := tc.launcher.DescribeGrace(tc.actual, tc.given); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
