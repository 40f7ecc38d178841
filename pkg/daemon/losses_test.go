package daemon

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// The head's own mount is back a moment before those of the others, of which one
// has left by then.
func TestTheHeadCouldNotLook(t *testing.T) {
	const peer = 10 * time.Second
	tempo := health.HeadTempo(peer, 3)
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
				h := &deaths{lines: &lifeline.Lines{Signs: lifeline.NewSigns(tempo.Beat)}}
				daemons, alive := health.NewLiveness(tempo), map[int]int64{1: 1, 2: 1}
				h.lines.Connect(1)
				h.lines.Connect(2)
				for began := time.Now(); time.Since(began) < peer; time.Sleep(tempo.Look) {
					h.lines.Tick(time.Now())
					hangs := time.Since(began) > tempo.Look
					if hangs && tc.sick {
						h.lines.Hear(1, true)
						h.lines.Hear(2, true)
					}
					if !hangs || !tc.blind {
						daemons.Look(alive, time.Now())
						h.listen(daemons, alive, time.Now())
					}
				}
				h.lines.Part(2, lifeline.Left)
				daemons.Look(alive, time.Now())
				h.listen(daemons, alive, time.Now())
				if got := daemons.Silent(); len(got) != tc.lost {
					t.Errorf("the head takes %v for lost, want %d", got, tc.lost)
				}
			})
		})
	}
}

// TestKindOfLoss checks what the silence of a worker is taken for. A host that has said goodbye
// answered, so it is not lost.
func TestKindOfLoss(t *testing.T) {
	for _, tc := range []struct {
		name      string
		connected bool
		sick      bool
		parting   lifeline.Parting
		want      health.Kind
	}{
		{"its share hangs", true, true, lifeline.Left, health.HostHangs},
		{"its share hung, and it left", false, true, lifeline.Left, health.HostHangs},
		{"it left", false, false, lifeline.Left, health.HostHangs},
		{"its connection was reset", false, false, lifeline.Broken, health.DaemonDied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &deaths{lines: &lifeline.Lines{Signs: lifeline.NewSigns(time.Second)}}
			if got := d.lossOf(1); got != health.PeerLost {
				t.Errorf("a worker without a connection is %s", got)
			}
			d.lines.Connect(1)
			d.lines.Hear(1, tc.sick)
			if !tc.connected {
				d.lines.Part(1, tc.parting)
			}
			if got := d.lossOf(1); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Who looks for losses, because the driver has failed, may do so at any moment: where
// one is known, the run has ended.
func TestALossIsKnownWithTheEnd(t *testing.T) {
	lost := health.Observed{FailedRecord: signal.FailedRecord{Kind: string(health.DaemonDied), Lost: []int{1}}}
	for range 2000 {
		d := &deaths{node: &node{Lifetime: run.NewLifetime(t.Context()), Records: &run.Records{Trail: trail.New()}}}
		d.Background(func(context.Context) { d.condemn(lost) })
		for began := time.Now(); !d.missed()[1] && time.Since(began) < ceiling; {
			runtime.Gosched()
		}
		goesOn := d.Life.Err() == nil
		d.Close()
		if goesOn {
			t.Fatal("rank 1 is lost, and the run goes on")
		}
	}
}
