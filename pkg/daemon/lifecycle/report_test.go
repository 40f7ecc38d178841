package lifecycle_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// fullShare is a share on which no file can be made while it is full, or hangs.
type fullShare struct {
	signal.SharedFS
	full   atomic.Bool
	hangs  atomic.Int64 // how long a call takes, in nanoseconds
	writes atomic.Int64 // calls so far
	// onSpace answers queries of the free space; nil: the share does
	onSpace func() (files.Space, error)
}

func (f *fullShare) SpaceOf(path string) (files.Space, error) {
	if f.onSpace != nil {
		return f.onSpace()
	}
	return f.SharedFS.SpaceOf(path)
}

func (f *fullShare) WriteFile(path string, data []byte, durable bool) error {
	f.writes.Add(1)
	time.Sleep(time.Duration(f.hangs.Load()))
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return f.SharedFS.WriteFile(path, data, durable)
}

// reporter is node 1 of a job, whose head receives what it sends.
type reporter struct {
	*lifecycle.Publisher
	fs    *fullShare
	share *memory.Share

	mu   sync.Mutex
	sent []string // guarded by mu
}

// inBubble runs a test with a node whose share can be full.
func inBubble(t *testing.T, test func(t *testing.T, r *reporter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &reporter{share: memory.NewShare("/share")}
		meter := new(signal.CallMeter)
		r.fs = &fullShare{SharedFS: r.share.Access(meter)}
		place := signal.Location{LogDir: "/share/logs", Run: "j", Key: "k", Size: 2, Host: "n0"}
		place.Access = signal.Access{FS: r.fs, Meter: meter, NoHints: true}
		head, err := signal.CreateRun(t.Context(), place, record.Job{})
		if err != nil {
			t.Fatal(err)
		}
		life := lifecycle.NewLifetime(t.Context())
		r.Publisher = &lifecycle.Publisher{Lifetime: life, Events: eventlog.New(),
			Log: zap.NewNop(), Meter: meter, PeerTimeout: 10 * time.Second, Dir: head.ForNode(1)}
		r.NodeIndex = 1
		r.Reports.Send = func(name string, content []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.sent = append(r.sent, name+" "+string(content))
		}
		defer r.Close()
		test(t, r)
	})
}

// takeSent returns what was sent since the last call, without the contents.
func (r *reporter) takeSent() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.sent {
		name, _, _ := strings.Cut(text, " ")
		names = append(names, name)
	}
	r.sent = nil
	return names
}

func (r *reporter) published() []string { return r.share.ReadDir("/share/logs/j/nodes") }

func wantNames(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestReport checks that a report on a share without faults is sent once and written once, with the
// calls of a record, and that it is not sent again.
func TestReport(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reporter) {
		before := r.fs.writes.Load()
		<-r.Report("0001.failed", &record.Failure{}, true)
		synctest.Wait() // until it does not count as unwritten any more
		r.Reports.SendUnwritten()
		time.Sleep(time.Hour)
		wantNames(t, "sent", r.takeSent(), "0001.failed")
		wantNames(t, "published", r.published(), "0001.failed")
		if calls := r.fs.writes.Load() - before; calls != 1 {
			t.Errorf("%d files were written", calls)
		}
	})
}

// TestReportOnFullShare checks that a report that cannot be written is sent at once, is sent again
// after a reconnection, and is written with the same content when there is space again.
func TestReportOnFullShare(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reporter) {
		r.fs.full.Store(true)
		<-r.Report("0001.i0000.g0.exited", &record.InstanceExit{Role: "judge"}, true)
		<-r.Report("0001.i0000.g1.ready", nil, false)
		content := r.sent[0]
		wantNames(t, "sent", r.takeSent(), "0001.i0000.g0.exited", "0001.i0000.g1.ready")
		r.Reports.SendUnwritten()
		wantNames(t, "sent again", r.takeSent(), "0001.i0000.g0.exited", "0001.i0000.g1.ready")
		time.Sleep(time.Hour)
		if attempts := r.fs.writes.Load(); attempts > 1000 {
			t.Errorf("%d attempts in an hour", attempts)
		}
		wantNames(t, "published", r.published())
		r.fs.full.Store(false)
		time.Sleep(11 * time.Second)
		wantNames(t, "published", r.published(), "0001.i0000.g0.exited", "0001.i0000.g1.ready")
		data, err := r.share.ReadFile("/share/logs/j/nodes/0001.i0000.g0.exited")
		if err != nil || "0001.i0000.g0.exited "+string(data) != content {
			t.Errorf("%q, %v was written, and %q sent", data, err, content)
		}
		r.takeSent()
		r.Reports.SendUnwritten()
		wantNames(t, "sent when all is written", r.takeSent())
	})
}

// TestReportOnHangingShare checks that reports are sent in their order while nothing can be
// written, that not more than one attempt for each is in progress, and that the end does not wait.
func TestReportOnHangingShare(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reporter) {
		r.fs.hangs.Store(int64(time.Hour))
		began, before := time.Now(), r.fs.writes.Load()
		r.Report("0001.i0000.g0.exited", &record.InstanceExit{}, true)
		r.Report("0001.i0000.g1.ready", nil, false)
		r.Report("0001.i0001.g0.ready", nil, false)
		if took := time.Since(began); took != 0 {
			t.Errorf("the caller waits for %s", took)
		}
		wantNames(t, "sent", r.takeSent(), "0001.i0000.g0.exited", "0001.i0000.g1.ready", "0001.i0001.g0.ready")
		time.Sleep(30 * time.Minute)
		if calls := r.fs.writes.Load() - before; calls > 3 {
			t.Errorf("%d attempts to write 3 reports are in progress", calls)
		}
		r.fs.hangs.Store(0)
		r.CancelRun(&lifecycle.Outcome{Code: 77})
		began = time.Now()
		r.Reports.AwaitTried(r.PeerTimeout)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end waits for %s", took)
		}
		time.Sleep(time.Hour)
		wantNames(t, "published", r.published(), "0001.i0000.g0.exited", "0001.i0000.g1.ready", "0001.i0001.g0.ready")
	})
}

// TestReportNotAwaited checks that a report is not written again while the first attempt is in
// progress, which the end of the run has not awaited: that attempt would replace the name.
func TestReportNotAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reporter) {
		r.fs.hangs.Store(int64(3 * time.Second / 2))
		r.Report("0001.i0000.g0.ready", nil, false)
		time.Sleep(lifecycle.UnresponsiveTimeout)
		r.CancelRun(&lifecycle.Outcome{Code: 77})
		before := r.fs.writes.Load()
		<-r.Report("0001.failed", &record.Failure{}, true)
		time.Sleep(5 * time.Second / 4) // one pause, after which the share still hangs
		if calls := r.fs.writes.Load() - before; calls != 1 {
			t.Errorf("%d attempts are in progress", calls)
		}
		time.Sleep(time.Hour)
		wantNames(t, "published", r.published(), "0001.failed", "0001.i0000.g0.ready")
	})
}

// TestReportDone checks that the end of a node is sent only if it cannot be written: the head must
// not leave before its nodes have written everything.
func TestReportDone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reporter) {
		<-r.ReportDone(&record.Done{})
		wantNames(t, "sent", r.takeSent())
		wantNames(t, "published", r.published(), "0001.done")
	})
	inBubble(t, func(t *testing.T, r *reporter) {
		r.fs.full.Store(true)
		<-r.ReportDone(&record.Done{})
		wantNames(t, "sent", r.takeSent(), "0001.done")
	})
}

// TestReportEndsWithDaemon checks that no attempt follows the end of the daemon.
func TestReportEndsWithDaemon(t *testing.T) {
	inBubble(t, func(t *testing.T, r *reporter) {
		r.fs.full.Store(true)
		r.Report("0001.failed", &record.Failure{}, true)
		time.Sleep(time.Minute)
		r.Close()
		before := r.fs.writes.Load()
		time.Sleep(time.Hour)
		if after := r.fs.writes.Load(); after != before {
			t.Errorf("%d attempts after the end", after-before)
		}
	})
}
