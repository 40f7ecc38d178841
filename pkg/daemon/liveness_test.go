package daemon

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestTheHeadCouldNotLook simulates hanging mounts. The head's own mount recovers a moment before
// those of the others, one of which has left by then.
func TestTheHeadCouldNotLook(t *testing.T) {
	const peer = 10 * time.Second
	tempo := health.HeadHeartbeatTiming(peer, 3)
	for _, tc := range []struct {
		name  string
		blind bool
		sick  bool
		lost  int
	}{
		{"all hung", true, true, 0},
		{"the others hung", false, true, 2},
		{"the others said nothing", true, false, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &failureTracker{peerLinks: &peerlink.Links{Liveness: peerlink.NewLiveness(tempo.HeartbeatInterval)}}
				daemons, alive := health.NewLiveness(tempo), map[int]int64{1: 1, 2: 1}
				h.peerLinks.SetConnected(1)
				h.peerLinks.SetConnected(2)
				for began := time.Now(); time.Since(began) < peer; time.Sleep(tempo.MaxPollInterval) {
					h.peerLinks.RecordTick(time.Now())
					hangs := time.Since(began) > tempo.MaxPollInterval
					if hangs && tc.sick {
						h.peerLinks.RecordHeartbeat(1, true)
						h.peerLinks.RecordHeartbeat(2, true)
					}
					if !hangs || !tc.blind {
						daemons.RecordPoll(alive, time.Now())
						h.applyLinkLiveness(daemons, alive, time.Now())
					}
				}
				h.peerLinks.SetDisconnected(2, peerlink.Goodbye)
				daemons.RecordPoll(alive, time.Now())
				h.applyLinkLiveness(daemons, alive, time.Now())
				if got := daemons.LostPeers(); len(got) != tc.lost {
					t.Errorf("the head takes %v for lost, want %d", got, tc.lost)
				}
			})
		})
	}
}

// TestKindOfLoss verifies how the silence of a worker is classified. A host that has said goodbye
// has answered, so it is not lost.
func TestKindOfLoss(t *testing.T) {
	for _, tc := range []struct {
		name      string
		connected bool
		sick      bool
		parting   peerlink.CloseReason
		want      health.Kind
	}{
		{"its share hangs", true, true, peerlink.Goodbye, health.HostHangs},
		{"its share hung, and it left", false, true, peerlink.Goodbye, health.HostHangs},
		{"it left", false, false, peerlink.Goodbye, health.HostHangs},
		{"its connection was reset", false, false, peerlink.Broken, health.DaemonDied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &failureTracker{peerLinks: &peerlink.Links{Liveness: peerlink.NewLiveness(time.Second)}}
			if got := d.lossKind(1); got != health.PeerLost {
				t.Errorf("a worker without a connection is %s", got)
			}
			d.peerLinks.SetConnected(1)
			d.peerLinks.RecordHeartbeat(1, tc.sick)
			if !tc.connected {
				d.peerLinks.SetDisconnected(1, tc.parting)
			}
			if got := d.lossKind(1); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestALossIsKnownWithTheEnd verifies that, once a loss is known, the run has ended. After a
// failure of the driver, another goroutine may check for losses at any moment.
func TestALossIsKnownWithTheEnd(t *testing.T) {
	lost := health.ObservedFailure{Failure: record.Failure{Kind: health.DaemonDied, LostNodes: []int{1}}}
	for range 2000 {
		d := &failureTracker{node: &node{Lifetime: lifecycle.NewLifetime(t.Context()), Publisher: &lifecycle.Publisher{Events: eventlog.New()}}}
		d.Background(func(context.Context) { d.recordFailure(lost) })
		for began := time.Now(); !d.lostNodes()[1] && time.Since(began) < ceiling; {
			runtime.Gosched()
		}
		goesOn := d.RunCtx.Err() == nil
		d.Close()
		if goesOn {
			t.Fatal("node 1 is lost, and the run goes on")
		}
	}
}
