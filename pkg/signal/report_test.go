package signal_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// faultyShare is a share whose calls a test makes fail or hang.
type faultyShare struct {
	signal.SharedFS
	onList   atomic.Pointer[func() error]
	onRename func() error // called after the rename
}

func (f *faultyShare) ListDir(path string, vet func(signal.FileAttributes) error) ([]string, error) {
	if onList := f.onList.Load(); onList != nil {
		if err := (*onList)(); err != nil {
			return nil, err
		}
	}
	return f.SharedFS.ListDir(path, vet)
}

func (f *faultyShare) ChangeName(how signal.Op, from, to string) error {
	err := f.SharedFS.ChangeName(how, from, to)
	if err == nil && how == signal.OpRename && f.onRename != nil {
		err = f.onRename()
	}
	return err
}

// reportJob runs a test in a bubble, with the run directory of a job of three nodes as the head and
// node 1 see it.
func reportJob(t *testing.T, test func(t *testing.T, head, worker *signal.Dir, fs *faultyShare, share *memory.Share)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		share := memory.NewShare("/share")
		fs := &faultyShare{SharedFS: share.Access(new(signal.CallMeter))}
		place := signal.Location{LogDir: "/share/logs", Run: "j", Key: "k", Size: 3, Host: "n0"}
		place.Access = signal.Access{FS: fs, NoHints: true}
		head, err := signal.CreateRun(t.Context(), place, record.Job{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, head, head.ForNode(1), fs, share)
	})
}

// watchNodes starts a watch of the nodes' records, and returns it after its first poll.
func watchNodes(t *testing.T, head *signal.Dir) (w *signal.Watch, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w = head.NewWatch(signal.NodesDir, signal.HeadPace)
	var runs sync.WaitGroup
	runs.Go(func() { w.Run(ctx) })
	if _, err := w.WaitListing(t.Context(), func(signal.Listing) bool { return true }); err != nil {
		t.Fatal(err)
	}
	return w, func() {
		cancel()
		runs.Wait()
	}
}

// TestReportIsSeenAtOnce checks that a report is in the listings while no poll succeeds, that its
// content is read without the file, and that the state is the same when a listing shows it.
func TestReportIsSeenAtOnce(t *testing.T) {
	for name, fault := range map[string]func() error{
		"polls fail": func() error { return syscall.ENOENT },
		"polls hang": func() error { time.Sleep(time.Minute); return syscall.ESTALE },
		"no fault":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			reportJob(t, func(t *testing.T, head, worker *signal.Dir, fs *faultyShare, _ *memory.Share) {
				w, stop := watchNodes(t, head)
				defer stop()
				if fault != nil {
					fs.onList.Store(&fault)
				}
				time.Sleep(5 * time.Second)
				exited := signal.InstanceName(record.InstanceMark{Node: 1, Instance: 2,
					State: record.InstanceExited}, 3)
				content, err := worker.EncodeReport(&record.InstanceExit{Role: "judge"})
				if err != nil {
					t.Fatal(err)
				}
				began, before := time.Now(), w.LastListing()
				if err := head.AcceptReport(1, exited, content); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				l := w.LastListing()
				if marks := l.Instances(); len(marks) != 1 || marks[0].Instance != 2 ||
					l.Polls != before.Polls || l.PolledAt != before.PolledAt || l.SeenAt != began {
					t.Errorf("the listing has %+v; %d polls, %s ago, seen %s ago", marks, l.Polls,
						time.Since(l.PolledAt), time.Since(l.SeenAt))
				}
				rec := new(record.InstanceExit)
				if err := head.ReadRecord(t.Context(), signal.NodesDir, exited, rec); err != nil ||
					rec.Role != "judge" {
					t.Errorf("it reads %+v, %v", rec, err)
				}
				// It is written later.
				fs.onList.Store(nil)
				if err := worker.WriteReport(t.Context(), exited, content, true, false); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				if marks := w.LastListing().Instances(); len(marks) != 1 {
					t.Errorf("the listing has %+v", marks)
				}
				if err := worker.RemoveNames(t.Context(), signal.NodesDir, exited); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if marks := w.LastListing().Instances(); len(marks) != 0 {
					t.Errorf("the listing has %+v of a name that was removed", marks)
				}
			})
		})
	}
}

// TestReportBeforeFirstPoll checks that a report is not lost that arrives before the first poll.
func TestReportBeforeFirstPoll(t *testing.T) {
	reportJob(t, func(t *testing.T, head, _ *signal.Dir, _ *faultyShare, _ *memory.Share) {
		if err := head.AcceptReport(2, "0002.failed", nil); err != nil {
			t.Fatal(err)
		}
		w, stop := watchNodes(t, head)
		defer stop()
		if !w.LastListing().IsIn(2, record.StateFailed) {
			t.Errorf("the listing has %v", w.LastListing().AllNames())
		}
	})
}

// TestReportOfAnother checks that a member can report only what its own node publishes.
func TestReportOfAnother(t *testing.T) {
	reportJob(t, func(t *testing.T, head, worker *signal.Dir, _ *faultyShare, _ *memory.Share) {
		own, err := worker.EncodeReport(&record.Failure{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := head.ForNode(2).EncodeReport(&record.Failure{})
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			member  int
			name    string
			content []byte
			ok      bool
		}{
			{1, "0001.failed", own, true},
			{1, "0001.i0000.g0.ready", nil, true},
			{4, "0001-1.failed", own, true}, // the daemon of a further step of node 1
			{4, "0001.i0000.g0.exited", own, true},
			{1, "0002.failed", own, false},
			{1, "0001-1.failed", own, false},
			{1, "0001.failed", other, false},
			{1, "0001.failed", own[:len(own)-1], false},
			{1, "0001.failed", []byte("{}\n"), false},
			{1, "go", nil, false},
			{1, "01.failed", own, false},
		} {
			if err := head.AcceptReport(tc.member, tc.name, tc.content); (err == nil) != tc.ok {
				t.Errorf("%s with %d bytes of member %d: %v", tc.name, len(tc.content), tc.member, err)
			}
		}
	})
}

// TestReportWrittenAgain checks that another attempt to write a report replaces nothing, if the
// first one has published it although it has failed.
func TestReportWrittenAgain(t *testing.T) {
	reportJob(t, func(t *testing.T, _, worker *signal.Dir, fs *faultyShare, share *memory.Share) {
		content, err := worker.EncodeReport(&record.Failure{})
		if err != nil {
			t.Fatal(err)
		}
		fs.onRename = func() error { return syscall.EDQUOT }
		const name, path = "0001.failed", "/share/logs/j/nodes/0001.failed"
		if err := worker.WriteReport(t.Context(), name, content, true, false); err == nil {
			t.Error("it has not failed")
		}
		fs.onRename = func() error { t.Error("it was renamed again"); return nil }
		was := share.Find(path)
		if err := worker.WriteReport(t.Context(), name, content, true, true); err != nil {
			t.Error(err)
		}
		if data, err := share.ReadFile(path); err != nil || !slices.Equal(data, content) || share.Find(path) != was {
			t.Errorf("it has %q, %v", data, err)
		}
	})
}

// TestReportOfHead checks that a record of the head is in the listings of the control directory at
// once, and only if the head has written it.
func TestReportOfHead(t *testing.T) {
	reportJob(t, func(t *testing.T, head, worker *signal.Dir, fs *faultyShare, _ *memory.Share) {
		ctx, cancel := context.WithCancel(t.Context())
		w := worker.NewWatch(signal.ControlDir, signal.HeadPace)
		var runs sync.WaitGroup
		runs.Go(func() { w.Run(ctx) })
		defer runs.Wait()
		defer cancel()
		time.Sleep(5 * time.Second)
		fails := func() error { return syscall.ENOENT }
		fs.onList.Store(&fails)
		abort, err := head.EncodeReport(&record.Abort{Code: 77})
		if err != nil {
			t.Fatal(err)
		}
		forged, err := worker.EncodeReport(&record.Abort{Code: 1})
		if err != nil {
			t.Fatal(err)
		}
		if worker.AcceptHeadReport(signal.AbortName(0, 3), forged) == nil {
			t.Error("a record of node 1 is accepted as the head's")
		}
		if err := worker.AcceptHeadReport(signal.AbortName(0, 3), abort); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		rec := new(record.Abort)
		if err := worker.ReadRecord(t.Context(), signal.ControlDir, signal.AbortName(0, 3),
			rec); err != nil || rec.Code != 77 {
			t.Errorf("it reads %+v, %v", rec, err)
		}
		if nodes := w.LastListing().NodesWithAbort(); !slices.Equal(nodes, []int{0}) {
			t.Errorf("the listing shows aborts of %v", nodes)
		}
	})
}
