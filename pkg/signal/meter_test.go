package signal

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestMeterCounts verifies that each call is counted by the kind of its system call.
func TestMeterCounts(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(d *Dir) error
		want map[string]int64
	}{
		{"publish", func(d *Dir) error {
			return d.PublishRecord(t.Context(), NodesDir, "0000.failed", &record.Mark{}, false)
		},
			map[string]int64{"open": 1, "write": 1, "close": 1, "rename": 1, "stat": 1}},
		{"publish again", func(d *Dir) error {
			d.access.serverClock.queried.Store(true)
			return d.PublishRecord(t.Context(), NodesDir, "0000.failed", &record.Mark{}, false)
		}, map[string]int64{"open": 1, "write": 1, "close": 1, "rename": 1}},
		{"publish for good", func(d *Dir) error {
			return d.PublishRecord(t.Context(), NodesDir, "0000.failed", &record.Mark{}, true)
		},
			map[string]int64{"open": 2, "write": 1, "close": 2, "rename": 1, "sync": 2, "stat": 1}},
		{"publish once", func(d *Dir) error { return d.PublishOnce(t.Context(), NameResult, &record.Mark{}) },
			map[string]int64{"open": 2, "write": 1, "close": 2, "link": 1, "sync": 2, "remove": 1}},
		{"mark", func(d *Dir) error { return d.WriteMark(t.Context(), NodesDir, "0000.up") },
			map[string]int64{"open": 1, "close": 1}},
		{"space", func(d *Dir) error { _, err := d.QuerySpace(t.Context()); return err },
			map[string]int64{"statfs": 1}},
		{"read", func(d *Dir) error { return d.ReadRecord(t.Context(), ControlDir, NameJob, &record.Job{}) },
			map[string]int64{"open": 1, "read": 1, "close": 1}},
		{"two beats", func(d *Dir) error {
			return errors.Join(d.WriteHeartbeat(t.Context(), NodesDir), d.WriteHeartbeat(t.Context(), NodesDir))
		}, map[string]int64{"open": 1, "close": 1, "rename": 1}},
		{"look", func(d *Dir) error { _, err := d.HasEnded(t.Context()); return err },
			map[string]int64{"open": 1, "list": 1, "close": 1}},
		{"a line of a log", func(d *Dir) error {
			log := d.NewLogFile(LogsDir, "driver.log")
			_, err := log.Write([]byte("line\n"))
			return errors.Join(err, log.Close())
		}, map[string]int64{"open": 1, "write": 1, "close": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			p.Meter = new(CallMeter)
			d := create(t, p)
			before := p.Meter.CallStats()
			must(t, tc.do(d))
			count := func() (got map[string]int64, sum, all int64) {
				after := p.Meter.CallStats()
				got = make(map[string]int64)
				for kind, count := range after.ByKind {
					if count > before.ByKind[kind] {
						got[kind] = count - before.ByKind[kind]
						sum += got[kind]
					}
				}
				return got, sum, after.Calls - before.Calls
			}
			got, sum, all := count()
			for began := time.Now(); !maps.Equal(got, tc.want) && time.Since(began) < ceiling; got, sum, all = count() {
				time.Sleep(time.Millisecond) // some closes are not awaited
			}
			if !maps.Equal(got, tc.want) || all != sum {
				t.Errorf("counted %v, want %v", got, tc.want)
			}
		})
	}
}

// TestMeterOrder verifies that files that must survive a crash of the server are synced before
// their name appears, and the directory afterwards; and that no file is renamed before it is
// closed.
func TestMeterOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(d *Dir) error
		want []Op
	}{
		{"publish", func(d *Dir) error {
			return d.PublishRecord(t.Context(), NodesDir, "0000.failed", &record.Mark{}, false)
		},
			[]Op{OpOpen, OpWrite, OpClose, OpRename}},
		{"publish for good", func(d *Dir) error {
			return d.PublishRecord(t.Context(), NodesDir, "0000.failed", &record.Mark{}, true)
		},
			[]Op{OpOpen, OpWrite, OpSync, OpClose, OpRename, OpOpen, OpSync, OpClose}},
		{"publish once", func(d *Dir) error { return d.PublishOnce(t.Context(), NameResult, &record.Mark{}) },
			[]Op{OpOpen, OpWrite, OpSync, OpClose, OpLink, OpOpen, OpSync, OpClose, OpRemove}},
		{"claim", func(d *Dir) error { return d.ClaimRecord(t.Context(), NodesDir, "0000.joined", &record.Mark{}) },
			[]Op{OpOpen, OpWrite, OpClose, OpLink, OpRemove}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			var mu sync.Mutex
			var told []Op // guarded by mu
			p.Meter = new(CallMeter)
			d := create(t, p)
			d.access.FS = NewDiskFS(before(func(op Op, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, op)
				return nil
			}))
			d.access.serverClock.queried.Store(true)
			err := tc.do(d)
			d.access.Meter.AwaitIdle(within(t)) // the temporary file of a claim is removed in the background
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !slices.Equal(told, tc.want) {
				t.Errorf("got %v, not %v (%v)", told, tc.want, err)
			}
		})
	}
}

// TestMeterOfAJoin verifies the calls of a worker from its start until it has joined: the first
// poll finds the directory, and the first record yields the server's clock.
func TestMeterOfAJoin(t *testing.T) {
	p := newPlace(t)
	create(t, p)
	p.NodeIndex, p.Meter = 1, new(CallMeter)
	d, _, err := NewFinder(p).AwaitRun(t.Context())
	must(t, err)
	must(t, d.PublishRecord(t.Context(), NodesDir, NodeName(1, p.Size, record.StateJoined), &record.Joined{}, false))
	stats := p.Meter.CallStats()
	for began := time.Now(); stats.Calls < 14 && time.Since(began) < ceiling; stats = p.Meter.CallStats() {
		time.Sleep(time.Millisecond) // some closes are not awaited
	}
	if stats.Calls != 14 {
		t.Errorf("%d calls, want 14: %v", stats.Calls, stats.ByKind)
	}
}

func TestMeterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(CallMeter)
		hang := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Access{Meter: m}.guardedDo(ctx, "publish", filepath.Join("nodes", "0001.up"), func() error {
			return NewDiskFS(m).(diskFS).meteredDo(OpOpen, "open", func() error { <-hang; return nil })
		})
		if _, stalled := errors.AsType[*StallError](err); !stalled {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		if m.UnresponsiveFor() != time.Minute+time.Second || m.AwaitIdle(ctx) {
			t.Errorf("silent for %s, settled: %t", m.UnresponsiveFor(), m.AwaitIdle(ctx))
		}
		slowest := m.CallStats().Slowest
		if !slowest.Pending || slowest.Op != "publish" || slowest.Path != "nodes/0001.up" ||
			slowest.Took != m.UnresponsiveFor() {
			t.Errorf("the slowest is %+v", slowest)
		}
		close(hang)
		if !m.AwaitIdle(t.Context()) || m.UnresponsiveFor() != 0 {
			t.Errorf("silent for %s after the answer", m.UnresponsiveFor())
		}
		if slowest := m.CallStats().Slowest; slowest.Pending || slowest.Op != "open" {
			t.Errorf("the slowest is %+v", slowest)
		}
	})
}

// TestMeterSilenceOfTheOldest verifies that, of several calls in progress, the oldest determines
// the silence.
func TestMeterSilenceOfTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(CallMeter)
		const many = 8
		var asked []*pendingRequest
		for range many {
			asked = append(asked, m.beginRequest("list", "nodes"))
			time.Sleep(time.Second)
		}
		for number, r := range asked {
			if want := time.Duration(many-number) * time.Second; m.UnresponsiveFor() != want ||
				m.CallStats().Slowest.Took != want {
				t.Errorf("silent for %s, and the slowest takes %s, want %s", m.UnresponsiveFor(),
					m.CallStats().Slowest.Took, want)
			}
			m.endRequest(r)
		}
	})
}
