package gpumonitor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/history"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// pair is a fake of a node's two GPUs.
type pair struct {
	devices []history.Device
	long    time.Duration // the run's duration
	counts  bool
}

func (*pair) Watch(context.Context, func(int), func(gpu.ClassifiedEvent)) error { return nil }
func (*pair) Topology() gpu.Topology                                            { return gpu.Topology{} }

// Devices returns the devices with their counters, except at the first call: no watch has begun
// then.
func (p *pair) Devices() ([]history.Device, []string) {
	devices := slices.Clone(p.devices)
	for i := range devices {
		if !p.counts {
			devices[i].Counters = nil
		}
	}
	p.counts = true
	return devices, nil
}

// shelf keeps the records of runs, the newest first. If hangs is set, reads block; if full is set,
// writes fail.
type shelf struct {
	texts       [][]byte
	hangs, full bool
}

func (s *shelf) ReadRecent(ctx context.Context, most int) ([][]byte, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.texts[:min(most, len(s.texts))], nil
}

func (s *shelf) SaveRecord(_ context.Context, data []byte) error {
	if s.full {
		return errors.New("cannot keep it: there is no space")
	}
	s.texts = append([][]byte{data}, s.texts...)
	return nil
}

// lives simulates a run on a node with these GPUs and this history, and returns the head's
// messages. The given events occur during the run.
func lives(t *testing.T, run string, gpus *pair, past *shelf, found []check.Finding, befalls ...gpu.ClassifiedEvent) (told []string) {
	t.Helper()
	gpus.counts = false
	life, end := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	c := New(Config{
		GPUs: gpus, Name: "n1", Size: 1, RunCtx: life, EventLog: eventlog.New(), Log: zap.NewNop(),
		History:    func() HistoryStore { return past },
		Header:     func() record.Header { return record.Header{} },
		Background: func(task func(context.Context)) { tasks.Go(func() { task(t.Context()) }) },
		Publish:    func(string, *record.Event) {},
		CancelRun:  func(error) { end() },
	})
	c.OnEvent = func(rec record.Event) { told = append(told, rec.Message) }
	c.AwaitReports(time.Minute) // returns at once: there are no reports
	c.StartHistory(run, found)
	synctest.Wait()
	for _, event := range befalls {
		c.handleEvent(event)
	}
	time.Sleep(gpus.long)
	began := time.Now()
	end()
	c.AwaitReports(time.Minute)
	if waited := time.Since(began); waited > 0 {
		t.Errorf("the end waits for %v", waited)
	}
	tasks.Wait()
	return told
}

func TestPastOfTwoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpus := &pair{devices: []history.Device{{ID: "GPU-a", Bus: "0000:1b:00.0"}, {ID: "GPU-b", Index: 1, Bus: "0000:9b:00.0"}}}
		found := func(observed string) []check.Finding {
			return []check.Finding{{ID: "gpu.ecc_unc", Device: &check.Device{UUID: "GPU-a"}, Verdict: check.Warn, Class: check.ClassNode, Observed: observed}}
		}
		lost := gpu.BuiltinXidTable().ClassifyEvent(gpu.Event{Kind: gpu.KindXid, Xid: 79, GPU: 1, UUID: "GPU-b"})
		past := &shelf{}
		if told := lives(t, "1.0", gpus, past, found("1 error"), lost); len(told) > 0 {
			t.Errorf("the first run tells %q", told)
		}
		gpus.devices[0].Counters = &history.Counters{Polls: 10, SlowedPolls: 2}
		told := lives(t, "2.0", gpus, past, found("2 errors"), gpu.BuiltinXidTable().ClassifyEvent(gpu.Event{Kind: gpu.KindXid, Xid: 31, GPU: 1, UUID: "GPU-b"}), lost)
		today := time.Now().Format(time.DateOnly)
		want := []string{
			"n1: GPU 0 (0000:1b:00.0): gpu.ecc_unc: 2 errors; also in run 1.0 of " + today + ": 1 error; drain the node, and test the device",
			"n1: GPU 1: Xid 31: ",
			"n1: GPU 0 (0000:1b:00.0): throttled 20 % of the run (2 of 10 readings)",
			"n1: GPU 1 (0000:9b:00.0): xid 79: 1 time; also in run 1.0 of " + today + ": 1 time; drain the node, and test the device",
		}
		if len(told) > 1 {
			told[1] = strings.Join(strings.SplitAfter(told[1], ": ")[:3], "")
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
		var record history.Record
		if err := json.Unmarshal(past.texts[0], &record); err != nil || len(record.Suspicions) != 4 || len(record.Devices[1].Events) != 1 {
			t.Errorf("it leaves %s: %v", past.texts[0], err)
		}
	})
}

// TestLongRun verifies that important changes are reported once during the run and at its end.
func TestLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpus := &pair{devices: []history.Device{
			{ID: "GPU-a", Bus: "0000:1b:00.0", Counters: &history.Counters{Polls: 60}},
			{ID: "GPU-b", Index: 1, Bus: "0000:9b:00.0", Counters: &history.Counters{Polls: 60, SlowedPolls: 60}},
		}}
		past := &shelf{}
		gpus.long = counterInterval / 2
		lives(t, "1.0", gpus, past, nil)
		gpus.long = 5*counterInterval + 1
		told := lives(t, "2.0", gpus, past, nil)
		const throttled = "n1: GPU 1 (0000:9b:00.0): throttled 100 % of the run (60 of 60 readings)"
		if len(told) != 3 || told[0] != throttled || told[2] != throttled || !strings.Contains(told[1], "; also in run 1.0 of ") {
			t.Errorf("it tells %q", told)
		}
	})
}

// TestLinkDown verifies that a link that goes down during the run is reported once and at the run's
// end, and is suspicious the second time.
func TestLinkDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		card := history.Device{ID: "506b:4b03:00c0:ffee", Name: "mlx5_3", Index: -1, Bus: "0000:18:00.0", Counters: new(history.Counters)}
		card.Counters.Increase.LinkDowns = new(3)
		gpus, past := &pair{devices: []history.Device{{ID: "GPU-a", Bus: "0000:1b:00.0"}, card}}, &shelf{}
		lives(t, "1.0", gpus, past, nil)
		gpus.long = 2*counterInterval + 1
		const down, suspect = "n1: mlx5_3: link went down 3 times", "n1: mlx5_3: link down: 3 times; also in run 1.0 of 2000-01-01: 3 times; drain the node, and test the device"
		// The finding at the first run's end is reported when the second begins.
		if diff := cmp.Diff([]string{down, suspect, down}, lives(t, "2.0", gpus, past, nil)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestPastThatHangs verifies that a hang loses only the history and delays nothing else.
func TestPastThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpus := &pair{devices: []history.Device{{ID: "GPU-a", Bus: "0000:1b:00.0", Counters: &history.Counters{Polls: 10, SlowedPolls: 10}}}}
		past := &shelf{hangs: true}
		told := lives(t, "1.0", gpus, past, nil)
		if diff := cmp.Diff([]string{"n1: GPU 0 (0000:1b:00.0): throttled 100 % of the run (10 of 10 readings)"}, told); diff != "" {
			t.Error(diff)
		}
		if len(past.texts) > 0 {
			t.Error("what could not be read is written over")
		}
		past = &shelf{full: true}
		if told := lives(t, "2.0", gpus, past, nil); len(told) != 1 {
			t.Errorf("on a full share it tells %q", told)
		}
	})
}
