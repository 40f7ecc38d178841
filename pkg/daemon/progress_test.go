package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestProgress verifies that the head reports which nodes are missing, and the reason if it is
// known. No other daemon does so, and standard output stays free of it.
func TestProgress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		waits := make(chan struct{})
		j := newJob(t, 4, "echo driven").looked(func(nodeIndex int, l *looks) {
			if nodeIndex == 2 {
				l.waits = waits
			}
		})
		j.all(func(c *deps.Config) { c.Times.Join = ceiling })
		j.start(3)
		const want = "s now, for 2 of 4 nodes: not joined: node 3; checks not passed: node 2 (node 2: waits for gpu.fabric: in progress)"
		// The condition that a node waits for is in its event log, which is written from time to time.
		j.until("the line of a long wait", func() bool { return strings.Contains(j.said(), want) })
		close(waits)
		j.start(0, 1, 2)
		j.expect(0, 0, 0, 0)
		if said := j.said(); strings.Count(said, "still waiting") > 3 {
			t.Errorf("it is told too often:\n%s", said)
		}
		if out := j.contents(j.out); out != "driven\n" {
			t.Errorf("standard output has %q", out)
		}
	})
}

// TestHeadAtRest checks the heartbeats of a head whose peer links are all healthy, once a second,
// for three of its longest heartbeat intervals.
func TestHeadAtRest(t *testing.T) {
	t.Parallel()
	for _, peer := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		t.Run(peer.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := deps.Config{Config: config.Config{Identity: testIdentity(0, 8), Framework: framework.None{}, Times: config.DefaultTimeouts()}}
				cfg.Times.Peer = peer
				rest := cfg.PublishedPlan().MaxHeartbeatInterval
				dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: t.TempDir(), Run: "1.0", Key: "k", Size: 8, Host: "n0"}, record.Job{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), 3*rest)
				defer stop()
				n := bare(t, cfg, dir)
				n.Links = health.NewLinks(health.LinksConfig{Interval: time.Hour}, time.Now())
				n.Links.Required, n.Links.TCPState = 1, func(int) peerlink.TCPState { return peerlink.TCPState{Acknowledges: true} }
				n.Links.SetConnected(1, time.Now())
				var pulse sync.WaitGroup
				pulse.Go(func() { n.HeartbeatTask(signal.ControlDir, record.StateHeartbeat)(ctx) })
				seen, at, beats := "", time.Now(), 0
				for ; ctx.Err() == nil; time.Sleep(time.Second) {
					names, err := filepath.Glob(filepath.Join(dir.Path(), signal.ControlDir, "0000.beat.*"))
					if err != nil {
						t.Fatal(err)
					}
					if now := fmt.Sprint(names); len(names) > 0 && now != seen {
						seen, at, beats = now, time.Now(), beats+1
					}
					if quiet := time.Since(at); quiet > rest+time.Second {
						t.Fatalf("after %d beats there is none for %v, and the job says %v", beats, quiet, rest)
					}
				}
				pulse.Wait()
				if beats < 2 || beats > 4 {
					t.Errorf("there were %d beats in three rests of %v", beats, rest)
				}
			})
		})
	}
}

func TestJobTellsThePlan(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0").looked(nil)
		j.start().expect(0, 0)
		plan := readRecordOf[record.Job](j, signal.ControlDir, signal.NameJob).Plan
		want := &record.Plan{
			Framework: "none", Phases: []record.Phase{"join", "check", "driver"}, NodesNeeded: 2, Driver: "sh", Command: "/bin/sh -c 'exit 0'",
			PhaseTimeouts:        map[record.Phase]time.Duration{"join": 30 * time.Second, "check": 30 * time.Second},
			MaxHeartbeatInterval: j.configs[0].Times.RelaxedPollInterval() + j.configs[0].Times.Peer/8,
		}
		if !reflect.DeepEqual(plan, want) {
			t.Errorf("the job tells the plan %+v, not %+v", plan, want)
		}
	})
}
