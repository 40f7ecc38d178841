package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
)

// waitsFor returns a line of shell that ends when a file exists.
func waitsFor(path string) string { return "while ! [ -e " + path + " ]; do sleep 0.02; done" }

// TestMetricsOfAJob verifies that each daemon has a metrics file for its lifetime, which shows the
// open gate.
func TestMetricsOfAJob(t *testing.T) {
	t.Parallel()
	dir, marks := t.TempDir(), t.TempDir()
	j := newRealJob(t, 3, waitsFor(marks+"/go")).all(func(c *deps.Config) {
		c.MetricsDir = dir
		c.Setup = "true"
	}).start()
	file := func(nodeIndex int) string { return filepath.Join(dir, fmt.Sprintf("bringupd-17.0-%d.prom", nodeIndex)) }
	has := func(text string, lines ...string) bool {
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line) {
				return false
			}
		}
		return true
	}
	for nodeIndex := range 3 {
		common := fmt.Sprintf(`run="17.0",rank="%d"`, nodeIndex)
		lines := []string{"bringupd_up{" + common + "} 1", "bringupd_phase_seconds{" + common + `,phase="join"} `, `bringupd_share_operations_total{` + common + `,op="open"} `,
			`bringupd_share_operations_seconds_total{` + common + `,op="open"} `}
		role := "worker"
		if nodeIndex == 0 {
			role = "head"
			lines = append(lines, "bringupd_nodes{"+common+`,state="joined"} 3`, "bringupd_nodes{"+common+`,state="checked"} 3`, "bringupd_nodes{"+common+`,state="failed"} 0`)
		}
		lines = append(lines, "bringupd_info{"+common+`,version="test",role="`+role+`"} 1`)
		j.until(file(nodeIndex), func() bool {
			text, err := os.ReadFile(file(nodeIndex))
			return err == nil && has(string(text), lines...) && (nodeIndex == 0 || !strings.Contains(string(text), "bringupd_nodes"))
		})
	}
	touch(t, marks+"/go")
	j.expect(0, 0, 0)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("this is left: %v", left)
	}
}
