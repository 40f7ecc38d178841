package signal

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Each call is counted by the kind that the kernel knows it as.
func TestMeterCounts(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(d *Dir) error
		want map[string]int64
	}{
		{"publish", func(d *Dir) error { return d.Publish(t.Context(), Nodes, "0000.failed", &State{}, false) },
			map[string]int64{"open": 1, "write": 1, "close": 1, "rename": 1, "stat": 1}},
		{"publish again", func(d *Dir) error {
			d.via.clock.asked.Store(true)
			return d.Publish(t.Context(), Nodes, "0000.failed", &State{}, false)
		}, map[string]int64{"open": 1, "write": 1, "close": 1, "rename": 1}},
		{"publish for good", func(d *Dir) error { return d.Publish(t.Context(), Nodes, "0000.failed", &State{}, true) },
			map[string]int64{"open": 2, "write": 1, "close": 2, "rename": 1, "sync": 2, "stat": 1}},
		{"publish once", func(d *Dir) error { return d.PublishOnce(t.Context(), NameResult, &State{}) },
			map[string]int64{"open": 2, "write": 1, "close": 2, "link": 1, "sync": 2, "remove": 1}},
		{"mark", func(d *Dir) error { return d.Mark(t.Context(), Nodes, "0000.up") }, map[string]int64{"open": 1, "close": 1}},
		{"space", func(d *Dir) error { _, err := d.Space(t.Context()); return err }, map[string]int64{"statfs": 1}},
		{"read", func(d *Dir) error { return d.Read(t.Context(), Control, NameJob, &Job{}) },
			map[string]int64{"open": 1, "read": 1, "close": 1}},
		{"two beats", func(d *Dir) error {
			return errors.Join(d.Beat(t.Context(), Nodes, BeatState), d.Beat(t.Context(), Nodes, BeatState))
		}, map[string]int64{"open": 1, "close": 1, "rename": 1}},
		{"look", func(d *Dir) error { _, err := d.Ended(t.Context()); return err },
			map[string]int64{"open": 1, "list": 1, "close": 1}},
		{"a line of a log", func(d *Dir) error {
			log := d.LogFile(Logs, "driver.log")
			_, err := log.Write([]byte("line\n"))
			return errors.Join(err, log.Close())
		}, map[string]int64{"open": 1, "write": 1, "close": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			p.Meter = new(Meter)
			d := create(t, p)
			before := p.Meter.Stats()
			if err := tc.do(d); err != nil {
				t.Fatal(err)
			}
			after := p.Meter.Stats()
			got, sum := make(map[string]int64), int64(0)
			for kind, count := range after.ByKind {
				if count > before.ByKind[kind] {
					got[kind] = count - before.ByKind[kind]
					sum += got[kind]
				}
			}
			if !maps.Equal(got, tc.want) || after.Calls-before.Calls != sum {
				t.Errorf("counted %v, want %v", got, tc.want)
			}
		})
	}
}

// What is to outlive a crash of the server is synced before its name appears, and
// the name afterwards; and nothing is named before it is closed.
func TestMeterOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(d *Dir) error
		want []Op
	}{
		{"publish", func(d *Dir) error { return d.Publish(t.Context(), Nodes, "0000.failed", &State{}, false) },
			[]Op{OpOpen, OpWrite, OpClose, OpRename}},
		{"publish for good", func(d *Dir) error { return d.Publish(t.Context(), Nodes, "0000.failed", &State{}, true) },
			[]Op{OpOpen, OpWrite, OpSync, OpClose, OpRename, OpOpen, OpSync, OpClose}},
		{"publish once", func(d *Dir) error { return d.PublishOnce(t.Context(), NameResult, &State{}) },
			[]Op{OpOpen, OpWrite, OpSync, OpClose, OpLink, OpOpen, OpSync, OpClose, OpRemove}},
		{"claim", func(d *Dir) error { return d.Claim(t.Context(), Nodes, "0000.joined", &State{}) },
			[]Op{OpOpen, OpWrite, OpClose, OpLink, OpRemove}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			var told []Op
			p.Share = Disk(before(func(op Op, _ string) error { told = append(told, op); return nil }))
			d := create(t, p)
			d.via.clock.asked.Store(true)
			told = nil
			if err := tc.do(d); err != nil || !slices.Equal(told, tc.want) {
				t.Errorf("got %v, not %v (%v)", told, tc.want, err)
			}
		})
	}
}

// What a worker asks from its start until it has joined: the first look finds
// the directory, and the first record tells the server's clock.
func TestMeterOfAJoin(t *testing.T) {
	p := newPlace(t)
	create(t, p)
	p.Rank, p.Meter = 1, new(Meter)
	d, _, err := NewFinder(p).Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(t.Context(), Nodes, NodeName(1, p.Size, Joined), &JoinedRecord{}, false); err != nil {
		t.Fatal(err)
	}
	if stats := p.Meter.Stats(); stats.Calls != 14 {
		t.Errorf("%d calls, want 14: %v", stats.Calls, stats.ByKind)
	}
}

func TestMeterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Meter)
		hang := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := do(ctx, m, "publish", filepath.Join("nodes", "0001.up"), func() error {
			return Disk(m).(disk).call(OpOpen, "open", func() error { <-hang; return nil })
		})
		if _, stalled := errors.AsType[*StallError](err); !stalled {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		if m.Silence() != time.Minute+time.Second || m.Settle(ctx) {
			t.Errorf("silent for %s, settled: %t", m.Silence(), m.Settle(ctx))
		}
		slowest := m.Stats().Slowest
		if !slowest.Pending || slowest.Op != "publish" || slowest.Path != "nodes/0001.up" || slowest.Took != m.Silence() {
			t.Errorf("the slowest is %+v", slowest)
		}
		close(hang)
		if !m.Settle(t.Context()) || m.Silence() != 0 {
			t.Errorf("silent for %s after the answer", m.Silence())
		}
		if slowest := m.Stats().Slowest; slowest.Pending || slowest.Op != "open" {
			t.Errorf("the slowest is %+v", slowest)
		}
	})
}

// Of several things that are asked for, the silence is that of the first.
func TestMeterSilenceOfTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Meter)
		const many = 8
		var asked []*request
		for range many {
			asked = append(asked, m.begin("list", "nodes"))
			time.Sleep(time.Second)
		}
		for number, r := range asked {
			if want := time.Duration(many-number) * time.Second; m.Silence() != want || m.Stats().Slowest.Took != want {
				t.Errorf("silent for %s, and the slowest takes %s, want %s", m.Silence(), m.Stats().Slowest.Took, want)
			}
			m.end(r)
		}
	})
}

// What each kind of call has come to adds up to what all have.
func TestMeterSpentAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Meter)
		for _, op := range []Op{OpRead, OpRead, OpWrite} {
			_ = Disk(m).(disk).call(op, "a", func() error { time.Sleep(time.Second); return nil })
		}
		want := []Spent{{OpRead, 2, 2 * time.Second}, {OpWrite, 1, time.Second}}
		if got := m.Spent(); !slices.Equal(got, want) {
			t.Errorf("got %v, not %v", got, want)
		}
		if busy := m.Stats().Busy; busy != 3*time.Second {
			t.Errorf("all calls have taken %v", busy)
		}
	})
}
