package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
)

// TestRunDirRemoved removes the run directory while the driver runs: the driver ends the job, the
// peer links carry that, the command for the end runs, and one sentence explains the missing result.
func TestRunDirRemoved(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"success": 0, "failure": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			marks := t.TempDir()
			line := "touch " + marks + "/running; until [ -e " + marks + "/removed ]; do sleep 0.05; done; exit " + strconv.Itoa(code)
			j := newRealJob(t, 3, line).all(func(c *deps.Config) {
				// Without its peer link, a node does not learn of the end.
				c.Lifeline, c.Setup = config.LinkOn, "true"
				c.After.OnEnd = "echo $BRINGUPD_EXIT_CODE >" + marks + "/told"
			}).start()
			j.untilFile(filepath.Join(marks, "running"))
			// Daemons may write there meanwhile.
			j.until("the removal", func() bool { return os.RemoveAll(j.run()) == nil })
			if err := os.WriteFile(filepath.Join(marks, "removed"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			j.expect(code, 0, 0)
			told, err := os.ReadFile(filepath.Join(marks, "told"))
			if err != nil || string(told) != strconv.Itoa(code)+"\n" {
				t.Errorf("the command for the end was told of %q (%v)", told, err)
			}
			if said := j.said(); strings.Count(said, "the run directory was removed") != 1 {
				t.Errorf("it said %s", said)
			}
		})
	}
}
