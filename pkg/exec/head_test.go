package exec

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
)

// team is a membership without the absent nodes; it accepts no requests.
type team struct{ absent []int }

func (team) SelectNodes([]string) ([]int, error) { return nil, errors.New("no node is named") }
func (team) OutputPrefix(int) string             { return "" }
func (m team) AbsentNodes() []int                { return m.absent }
func (team) NotifyWorker(int)                    {}

// newHead returns the head's side of a run of size nodes, and a function that waits for its
// goroutines.
func newHead(t *testing.T, size int, absent ...int) (h *Head, wait func()) {
	t.Helper()
	dir := newRun(t, size)
	var tasks sync.WaitGroup
	daemon := Daemon{
		Dir: dir, Control: dir.NewWatch(signal.ControlDir, signal.HeadPace), Log: zap.NewNop(), Trail: eventlog.New(),
		LogWriteError: func(err error) {
			if err != nil {
				t.Error(err)
			}
		},
		FileTimeout: ceiling, RunCtx: t.Context(), WorkCtx: t.Context(),
		Go: func(task func(context.Context)) { tasks.Go(func() { task(t.Context()) }) },
	}
	return NewHead(NewNode(daemon), team{absent}), tasks.Wait
}

// TestTellLost verifies that a caller is informed of the nodes that will not answer any more, once
// it waits for no others: the job continues without them.
func TestTellLost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		absent  []int
		missing []int
		want    []int
	}{
		{"all that is waited for are lost", []int{1, 2}, []int{1, 2}, []int{1, 2}},
		{"one may answer", []int{1, 2}, []int{0, 1}, nil},
		{"nobody is waited for", []int{1, 2}, nil, nil},
		{"a job that can't do without any ends", nil, []int{1, 2}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h, wait := newHead(t, 3, tc.absent...)
			q := &activeRequest{id: newRequestID(), unanswered: make(map[int]bool)}
			for _, node := range tc.missing {
				q.unanswered[node] = true
			}
			h.answerForLost(q)
			wait()
			var lost []int
			for node := range 3 {
				var last outputRecord
				data, err := os.ReadFile(filepath.Join(h.Dir.Path(), signal.ExecDir, q.id.fileName(endSuffix(h.Dir, node))))
				if errors.Is(err, os.ErrNotExist) {
					continue
				}
				if err := cmp.Or(err, json.Unmarshal(data, &last)); err != nil || last.End == nil || last.End.Code != 76 {
					t.Errorf("node %d: %s, %v", node, data, err)
				}
				lost = append(lost, node)
			}
			if !slices.Equal(lost, tc.want) || len(lost) > 0 && len(q.unanswered) > 0 {
				t.Errorf("%v are told to be lost, want %v; %v are waited for", lost, tc.want, q.unanswered)
			}
		})
	}
}

// TestLostKeepsWhatWasTold verifies that an end that a node has reported right before it was lost
// is kept with its output, even if the head's listing does not show it yet.
func TestLostKeepsWhatWasTold(t *testing.T) {
	t.Parallel()
	h, wait := newHead(t, 3, 1, 2)
	q := &activeRequest{id: newRequestID(), unanswered: map[int]bool{1: true, 2: true}}
	name := q.id.fileName(endSuffix(h.Dir, 1))
	own := &outputRecord{Output: Output{
		Pieces: []Piece{{Stream: 1, Data: []byte("n1\n")}}, End: &Exit{Code: 3, Exit: "exit code 3"},
	}}
	if err := h.Dir.PublishRecord(t.Context(), signal.ExecDir, name, own, false); err != nil {
		t.Fatal(err)
	}
	h.answerForLost(q)
	wait()
	var last outputRecord
	if err := h.Dir.ReadOwnedRecord(t.Context(), signal.ExecDir, name, &last); err != nil || last.End == nil || last.End.Code != 3 || len(last.Pieces) != 1 {
		t.Errorf("its own end is gone: %+v, %v", last.End, err)
	}
	if err := h.Dir.ReadOwnedRecord(t.Context(), signal.ExecDir, q.id.fileName(endSuffix(h.Dir, 2)), &last); err != nil || last.End.Code != lostNodeExitCode {
		t.Errorf("the other is not told to be lost: %+v, %v", last.End, err)
	}
}

// TestNothingStaysOfWhoLeavesAtOnce verifies that an answer is removed even if its caller leaves
// before the head has finished the poll that caused the answer, or before the answer is written.
func TestNothingStaysOfWhoLeavesAtOnce(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		h, wait := newHead(t, 1)
		soon, held := h.Go, make(chan struct{})
		if !read {
			h.Go = func(task func(context.Context)) { soon(func(ctx context.Context) { <-held; task(ctx) }) }
		}
		id := newRequestID()
		raw, _ := id.decode()
		if err := h.Dir.PublishRecord(t.Context(), signal.ExecDir, id.fileName(requestSuffix), &requestRecord{}, false); err != nil {
			t.Fatal(err)
		}
		look := func() map[requestID]requestFiles {
			all, err := h.pollRequests(t.Context())
			if err != nil {
				t.Error(err)
			}
			return all
		}
		all := look()
		h.acceptRequests(t.Context(), all)
		if read {
			wait()
		}
		h.ClientGone(raw, peerlink.Goodbye)
		h.updateRequests(all)
		h.updateRequests(look())
		close(held)
		wait()
		h.updateRequests(look())
		h.updateRequests(look())
		wait()
		if left := look()[id]; len(left) > 0 {
			t.Errorf("the answer was read: %v; %v stay in %s", read, left.fileNames(id), signal.ExecDir)
		}
	}
}

// TestRequestsAreForgotten verifies that a finished request is forgotten when no listing can show
// it any more, and not before: a job may run for months with a request every minute.
func TestRequestsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, wait := newHead(t, 1)
		defer wait()
		look := func(ids ...requestID) {
			all := make(map[requestID]requestFiles)
			for _, id := range ids {
				all[id] = requestFiles{requestSuffix: true}
			}
			h.acceptRequests(t.Context(), all)
			h.updateRequests(all)
			synctest.Wait()
		}
		const many = 100
		old := newRequestID()
		h.recordEvent(old, func(q *activeRequest) { q.stage = stageRemoved })
		for range many {
			id := newRequestID()
			raw, _ := id.decode()
			h.ClientActive(raw, true)
			// It names no node, so it is refused.
			if err := h.Dir.PublishRecord(t.Context(), signal.ExecDir, id.fileName(requestSuffix), &requestRecord{}, false); err != nil {
				t.Fatal(err)
			}
			look(id)
			if h.requests[id].stage != stageAccepted {
				t.Fatal("a request was not taken in")
			}
			h.ClientGone(raw, peerlink.Closed)
			look(id)
			h.ClientActive(raw, true) // late
			look()
			if look(id, old); h.requests[id].stage != stageRemoved || h.requests[old].stage != stageRemoved || h.nextPollDelay() != noPollDue {
				t.Fatalf("an old listing has it taken in once more: %+v", h.requests)
			}
			old = id
			time.Sleep(maxListingAge / 10)
		}
		if got := len(h.requests); got > 20 {
			t.Errorf("%d of %d requests are remembered", got, many)
		}
		time.Sleep(2 * maxListingAge)
		if look(); len(h.requests) > 0 {
			t.Errorf("long afterwards there are %v", h.requests)
		}
	})
}

// TestPauseBetweenLooks verifies that the head polls soon for an announced request, and less often
// the longer it does not appear; requests in progress are polled occasionally.
func TestPauseBetweenLooks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		taken bool
		since []time.Duration // time since each announcement
		want  time.Duration
	}{
		{"nothing", false, nil, noPollDue},
		{"one that runs", true, nil, requestPollInterval},
		{"one that was announced just now", false, []time.Duration{0}, 5 * time.Millisecond},
		{"a while ago", false, []time.Duration{100 * time.Millisecond}, 50 * time.Millisecond},
		{"long ago", false, []time.Duration{10 * time.Second}, requestPollInterval},
		{"too long ago", false, []time.Duration{announcedTimeout + 1}, noPollDue},
		{"two", false, []time.Duration{100 * time.Millisecond, 10 * time.Second}, 50 * time.Millisecond},
		{"one that runs, and one that was announced", true, []time.Duration{100 * time.Millisecond}, 50 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHead(NewNode(Daemon{}), team{})
				if tc.taken {
					h.recordEvent(newRequestID(), func(q *activeRequest) { q.stage = stageAccepted })
				}
				for _, since := range tc.since {
					h.recordEvent(newRequestID(), func(q *activeRequest) {
						q.startPolling()
						q.announcedAt = time.Now().Add(-since)
					})
				}
				got := h.nextPollDelay()
				if isBusy := h.IsBusy(); got != tc.want || isBusy != (tc.want != noPollDue) {
					t.Errorf("the next look comes after %s, want %s; it is busy: %t", got, tc.want, isBusy)
				}
			})
		})
	}
}
