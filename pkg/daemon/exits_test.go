package daemon

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
)

// TestExitBeforeDriver lets a service of a node end shortly before the driver ends with 0: it is
// the cause, although it cannot be explained before the driver has ended.
func TestExitBeforeDriver(t *testing.T) {
	t.Parallel()
	const size = 3
	for _, tc := range []struct {
		name   string
		node   int
		kind   health.Kind
		change func(t *testing.T, c *deps.Config, dies string)
	}{
		{"the head's service", 0, health.ServiceDied, func(_ *testing.T, c *deps.Config, dies string) {
			c.Framework = framework.None{HeadCommand: dies}
		}},
		{"a worker", 2, health.ServiceDied, func(_ *testing.T, c *deps.Config, dies string) {
			c.Framework = framework.None{WorkerCommand: only("2", dies)}
		}},
		{"a sandbox", 1, health.SandboxDied, func(t *testing.T, c *deps.Config, dies string) {
			c.Sandbox = config.Sandbox{Command: only("1", dies), Require: require(t, "all")}
		}},
	} {
		for how, dies := range map[string]string{
			"with 3": "exit 3", "with 0": "exit 0", "by TERM": "kill -TERM $$",
		} {
			rowInBubble(t, tc.name+" ends "+how, func(t *testing.T) {
				running := t.TempDir() + "/running"
				j := newJob(t, size, "touch "+running+"; sleep 0.05").all(func(c *deps.Config) {
					tc.change(t, c, "while ! [ -e "+running+" ]; do sleep 0.01; done; "+dies)
				})
				j.start().expect(everyone(77, size)...)
				j.blames(tc.node, tc.kind, 77)
			})
		}
	}
}
