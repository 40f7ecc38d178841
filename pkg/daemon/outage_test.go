package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestUnanswered verifies that a node that gets no response from the shared file system or from any
// other node counts as cut off for as long as both were silent.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	tempo := health.WorkerHeartbeatTiming(10*time.Second, 2)
	for _, tc := range []struct {
		name    string
		unheard time.Duration // 0: there is no peer link
		kind    health.Kind
		says    string
	}{
		{"without a lifeline", 0, health.ShareUnusable, "the shared file system has not responded to node 1 (n1) for 20s"},
		{"heard a moment ago", time.Second, health.ShareUnusable, "the shared file system has not responded to node 1 (n1) for 20s"},
		{"unheard for less long", 15 * time.Second, health.CutOff, "neither another node nor the shared file system has responded for 15s"},
		{"unheard for longer", 30 * time.Second, health.CutOff, "neither another node nor the shared file system has responded for 20s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 2, Host: "n0"}, record.Job{})
				if err != nil {
					t.Fatal(err)
				}
				n := bare(t, deps.Config{Config: config.Config{Identity: testIdentity(1, 2)}}, dir)
				n.Timing = tempo
				if tc.unheard > 0 {
					n.Links = health.NewLinks(health.LinksConfig{Interval: time.Second}, time.Now())
					n.Links.SetConnected(0, time.Now())
					for range tc.unheard / time.Second { // this daemon itself has run all the time
						time.Sleep(time.Second)
						n.Links.RecordTick(time.Now())
					}
				}
				if f := n.ShareTimeoutFailure(20 * time.Second); f.Kind != tc.kind || !strings.Contains(f.Message, tc.says) {
					t.Errorf("it is %s: %s", f.Kind, f.Message)
				}
			})
		})
	}
}
