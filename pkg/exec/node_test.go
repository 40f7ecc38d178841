package exec

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestCanceled reads orders in another order than they were given.
func TestCanceled(t *testing.T) {
	t.Parallel()
	one, other := newRequestID(), newRequestID()
	for _, tc := range []struct {
		name     string
		story    func(n *Node, begin func())
		canceled bool
	}{
		{"not at all", func(_ *Node, begin func()) { begin() }, false},
		{"after its begin", func(n *Node, begin func()) { begin(); n.cancelCommand(one) }, true},
		{"before its begin", func(n *Node, begin func()) { n.cancelCommand(one); begin() }, true},
		{"another", func(n *Node, begin func()) { n.cancelCommand(other); begin(); n.cancelCommand(other) }, false},
		{"begun twice", func(_ *Node, begin func()) { begin(); begin() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newRun(t, 1)
				var begun []context.Context
				n := NewNode(Daemon{
					Dir: dir, Control: dir.NewWatch(signal.ControlDir, signal.HeadPace), Log: zap.NewNop(), Trail: eventlog.New(),
					LogWriteError: func(error) {}, FileTimeout: ceiling, RunCtx: t.Context(), WorkCtx: t.Context(),
					Go: func(task func(context.Context)) { go task(t.Context()) },
					Start: func(wanted context.Context, _ process.Spec) (process.Handle, func(), error) {
						begun = append(begun, wanted)
						<-t.Context().Done()
						return nil, nil, context.Canceled
					},
				})
				tc.story(n, func() { n.startCommand(startRecord{ID: one, Argv: []string{"true"}, Nodes: []int{0}}) })
				synctest.Wait()
				if len(begun) != 1 || (begun[0].Err() != nil) != tc.canceled {
					t.Errorf("%d were begun, canceled: want %t", len(begun), tc.canceled)
				}
			})
		})
	}
}

// hangingFS is a file system on which the first read of an order hangs, and all listings after it
// do until then.
type hangingFS struct {
	signal.SharedFS
	reads    atomic.Int32 // of orders
	released chan struct{}
}

// ReadFile implements signal.SharedFS.
func (h *hangingFS) ReadFile(path string) ([]byte, error) {
	if strings.Contains(path, "/"+orderPrefix) && h.reads.Add(1) == 1 {
		<-h.released
	}
	return h.SharedFS.ReadFile(path)
}

// ListDir implements signal.SharedFS.
func (h *hangingFS) ListDir(path string, vet func(signal.FileAttributes) error) ([]string, error) {
	if h.reads.Load() > 0 {
		<-h.released
	}
	return h.SharedFS.ListDir(path, vet)
}

// TestOrderIsReadAgain verifies that an order is carried out although its first read hangs for longer
// than the timeout of calls, unless the head has removed it. While the file system hangs, the order
// is not read again.
func TestOrderIsReadAgain(t *testing.T) {
	for name, removed := range map[string]bool{"it remains": false, "it is removed": true} {
		synctest.Test(t, func(t *testing.T) {
			disk := &hangingFS{SharedFS: signal.NewDiskFS(new(signal.CallMeter)), released: make(chan struct{})}
			place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 1, Host: "n0", Access: signal.Access{FS: disk, NoHints: true}}
			dir, err := signal.CreateRun(t.Context(), place, record.Job{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var tasks sync.WaitGroup
			started := 0
			n := NewNode(Daemon{
				Dir: dir, Control: dir.NewWatch(signal.ControlDir, signal.HeadPace), Log: zap.NewNop(), Trail: eventlog.New(),
				LogWriteError: func(error) {}, FileTimeout: ceiling, RunCtx: ctx, WorkCtx: ctx,
				Go: func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) },
				Start: func(context.Context, process.Spec) (process.Handle, func(), error) {
					started++
					return nil, func() {}, context.Canceled
				},
			})
			n.Go(n.Control.Run)
			n.Go(n.HandleOrders)
			order := &startRecord{ID: newRequestID(), Argv: []string{"true"}, Nodes: []int{0}}
			orderName := order.ID.orderName("")
			if err := dir.PublishRecord(ctx, signal.ControlDir, orderName, order, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ceiling)
			if reads := disk.reads.Load(); reads != 1 {
				t.Errorf("%s: it was read %d times while the file system hung", name, reads)
			}
			wantReads, wantStarts := int32(2), 1
			if removed {
				wantReads, wantStarts = 1, 0
				if err := dir.RemoveNames(ctx, signal.ControlDir, orderName); err != nil {
					t.Fatal(err)
				}
			}
			close(disk.released)
			time.Sleep(5 * ceiling)
			synctest.Wait()
			if reads := disk.reads.Load(); started != wantStarts || reads != wantReads {
				t.Errorf("%s: the command was started %d times, after %d reads", name, started, reads)
			}
			if len(n.running) > 0 {
				t.Errorf("%d commands run still", len(n.running))
			}
			cancel()
			tasks.Wait()
		})
	}
}
