package exec

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// selecting is a membership in which a request always selects node 1.
type selecting struct{ team }

func (selecting) SelectNodes([]string) ([]int, error) { return []int{1}, nil }

// orderedRequest is a request of a caller for node 1, whose order has been written.
type orderedRequest struct {
	*Head
	t    *testing.T
	id   requestID
	wait func()
}

// newOrderedRequest accepts a request.
func newOrderedRequest(t *testing.T) orderedRequest {
	t.Helper()
	h, wait := newHead(t, 2)
	h.team = selecting{}
	r := orderedRequest{h, t, newRequestID(), wait}
	request := &requestRecord{Request: Request{Argv: []string{"true"}, Env: []string{"TOKEN=secret"}}}
	name := r.id.fileName(requestSuffix)
	if err := h.Dir.PublishRecord(t.Context(), signal.ExecDir, name, request, false); err != nil {
		t.Fatal(err)
	}
	h.acceptRequests(t.Context(), r.files())
	wait()
	r.wantOrders(r.id.orderName(""))
	return r
}

// files returns the present files of all requests.
func (r orderedRequest) files() map[requestID]requestFiles {
	r.t.Helper()
	all, err := r.pollRequests(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// poll does what the head does at each poll.
func (r orderedRequest) poll() {
	r.t.Helper()
	all := r.files()
	r.acceptRequests(r.t.Context(), all)
	r.updateRequests(all)
	r.wait()
}

// mark writes a file of the request without content.
func (r orderedRequest) mark(what string) {
	r.t.Helper()
	if err := r.Dir.WriteMark(r.t.Context(), signal.ExecDir, r.id.fileName(what)); err != nil {
		r.t.Fatal(err)
	}
}

// orders returns the names of the orders in the control directory.
func (r orderedRequest) orders() []string {
	r.t.Helper()
	names, err := r.Dir.ListNames(r.t.Context(), signal.ControlDir)
	if err != nil {
		r.t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, orderPrefix)
	})
	slices.Sort(names)
	return names
}

// listControl lists the control directory once, as its watch does.
func (r orderedRequest) listControl() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), ceiling)
	var watch sync.WaitGroup
	watch.Go(func() { r.Control.Run(ctx) })
	listed := func(l signal.Listing) bool { return l.Polls > 0 }
	if _, err := r.Control.WaitListing(ctx, listed); err != nil {
		r.t.Error(err)
	}
	cancel()
	watch.Wait()
}

func (r orderedRequest) wantOrders(want ...string) {
	r.t.Helper()
	if got := r.orders(); !slices.Equal(got, want) {
		r.t.Errorf("the orders are %v, want %v", got, want)
	}
}

// TestOrdersAreRemoved verifies that no order, which may contain secrets, is left when all nodes
// have answered, and none at the end of the run.
func TestOrdersAreRemoved(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ canceled, answers bool }{
		"answered":          {false, true},
		"canceled":          {true, true},
		"answered never":    {false, false},
		"canceled, in vain": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOrderedRequest(t)
			if tc.canceled {
				r.mark(cancelSuffix)
				r.poll()
				r.wantOrders(r.id.orderName(""), r.id.orderName(cancelSuffix))
			}
			if tc.answers {
				r.mark(endSuffix(r.Dir, 1))
				r.poll()
				r.wantOrders()
				return
			}
			r.poll()
			if len(r.orders()) == 0 {
				t.Error("the order is removed before the answer")
			}
			r.listControl()
			r.RemoveOrders(t.Context())
			r.wantOrders()
		})
	}
}

// TestSilentCaller verifies that the command of a caller that gives no sign of life is cancelled
// in time, and not before: neither while there are heartbeats, as files or by a connection, nor
// because the head itself has not polled for a while.
func TestSilentCaller(t *testing.T) {
	const long = 3 * clientSilenceTimeout
	for name, tc := range map[string]struct {
		sign     func(r orderedRequest, second int) // each second, for a long time
		interval time.Duration                      // between polls, after that
	}{
		"heartbeat files": {func(r orderedRequest, second int) {
			r.mark(fmt.Sprintf("%s.%02d", beatSuffix, second))
		}, requestPollInterval},
		"a connection": {func(r orderedRequest, _ int) {
			raw, _ := r.id.decode()
			r.ClientActive(raw, false)
		}, requestPollInterval},
		"no sign, and rare polls": {nil, 4 * maxCountedSilence},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newOrderedRequest(t)
				r.poll()
				for second := 1; tc.sign != nil && time.Duration(second)*time.Second <= long; second++ {
					tc.sign(r, second)
					r.poll()
					time.Sleep(time.Second)
				}
				r.wantOrders(r.id.orderName(""))
				// No sign any more.
				polls, limit := 0, clientSilenceTimeout/min(tc.interval, maxCountedSilence)
				for ; len(r.orders()) < 2 && polls < 100; polls++ {
					time.Sleep(tc.interval)
					r.poll()
				}
				if polls < int(limit)-2 || polls > int(limit)+2 {
					t.Errorf("it was cancelled after %d polls, want about %d", polls, limit)
				}
			})
		})
	}
}

// countingTeam counts how often a worker is notified of an order.
type countingTeam struct {
	selecting
	notified *atomic.Int32
}

func (t countingTeam) NotifyWorker(int) { t.notified.Add(1) }

// TestCancelIsOrderedOnce verifies that the nodes are told once that a command is cancelled,
// however long they take to end it.
func TestCancelIsOrderedOnce(t *testing.T) {
	t.Parallel()
	r := newOrderedRequest(t)
	var notified atomic.Int32
	r.team = countingTeam{notified: &notified}
	r.mark(cancelSuffix)
	for range 3 {
		r.poll()
	}
	if got := notified.Load(); got != 1 {
		t.Errorf("they were notified %d times", got)
	}
}
