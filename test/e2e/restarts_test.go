//go:build testbed

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestADaemonIsStartedAgain checks that a daemon which is killed, and started again by a loop in
// its task, joins the next attempt in the same allocation.
func TestADaemonIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		node int
	}{{"index 2", 2}, {"the head", 0}} {
		t.Run(tc.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			j := bed.start(t, launch{
				nodes: 4, flags: []string{"--peer-timeout=" + quick.String(), "--restarts=3"},
				container: []string{"sh", "-c",
					`for i in 0 1 2 3; do "$@"; code=$?; [ $code = 137 ] || break; done; exit $code`, "sh"},
				driver: []string{"sh", "-c",
					"echo attempt $BRINGUPD_ATTEMPT; [ $BRINGUPD_ATTEMPT = 1 ] || exec sleep 1013"},
			})
			bed.find(t, 0, "sleep", "1013")
			j.connected(3)
			kill(t, bed.daemonOf(t, tc.node), syscall.SIGKILL)
			j.wantCode(0)
			if got := j.stdout.String(); got != "attempt 0\nattempt 1\n" {
				t.Errorf("the driver said %q", got)
			}
			first := strings.TrimSuffix(filepath.Base(j.runDir()), "-a1")
			for attempt, want := range []struct {
				run        string
				code, next int
			}{{first, 76, 1}, {first + "-a1", 0, 0}} {
				var result record.Result
				data, err := os.ReadFile(filepath.Join(j.logs, want.run, signal.NameResult))
				if err == nil {
					err = json.Unmarshal(data, &result)
				}
				if err != nil || result.Code != want.code || result.NextAttempt != want.next {
					t.Errorf("attempt %d has ended with %d, and %d follows (%v)", attempt,
						result.Code, result.NextAttempt, err)
				}
			}
			bed.noneLeft(t)
		})
	}
}
