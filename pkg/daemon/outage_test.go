package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestOutagesAreToldOnce verifies that an outage that exceeds the peer timeout is logged once, and
// its end once.
func TestOutagesAreToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, said := observer.New(zap.WarnLevel)
		cfg := deps.Config{Config: config.Config{Identity: testIdentity(0, 2), Times: config.DefaultTimeouts()}, Set: deps.Set{Access: signal.Access{Meter: new(signal.CallMeter)}}}
		h := bareHead(t, cfg, nil)
		h.Log, h.Links = zap.New(core), health.NewLinks(health.LinksConfig{Interval: time.Second}, time.Now())
		h.Links.SetConnected(1, time.Now())
		outage := lifecycle.OutageReporter{Monitor: &h.Monitor, NodeNames: h.nodeNames}
		for _, step := range []struct {
			name string
			does func()
			wait time.Duration
			want string // logged at the end of the wait; empty: nothing
		}{
			{"well", func() {}, time.Minute, ""},
			{"sick before the job runs", func() { h.Links.RecordHeartbeat(1, true, time.Now()) }, 2 * cfg.Times.Peer, ""},
			{"well again", func() { h.Links.RecordHeartbeat(1, false, time.Now()) }, time.Second, ""},
			{"sick", func() { h.Links.SetRunning(true); h.Links.RecordHeartbeat(1, true, time.Now()) }, 0, ""},
			{"for half of the peer timeout", func() {}, cfg.Times.Peer / 2, ""},
			{"for longer than it", func() {}, cfg.Times.Peer/2 + 1, "the shared file system does not respond to node 1: the job continues"},
			{"and longer", func() {}, cfg.Times.Peer, ""},
			{"the share is back", func() { h.Links.RecordHeartbeat(1, false, time.Now()) }, time.Second, "the shared file system responds to all nodes again"},
			{"and stays", func() {}, time.Second, ""},
			{"sick once more", func() { h.Links.RecordHeartbeat(1, true, time.Now()) }, 0, ""},
			{"for long, as the job ends", func() { h.CancelRun(&lifecycle.Outcome{Orderly: true}) }, 2 * cfg.Times.Peer, ""},
		} {
			step.does()
			time.Sleep(step.wait)
			outage.LogChanges(time.Now())
			var got []string
			for _, entry := range said.TakeAll() {
				got = append(got, entry.Message)
			}
			if all := strings.Join(got, "; "); len(got) > 1 || (step.want == "") != (all == "") || !strings.Contains(all, step.want) {
				t.Errorf("%s: %q is said, want %q", step.name, all, step.want)
			}
		}
	})
}

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
