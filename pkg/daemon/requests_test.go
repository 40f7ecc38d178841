package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// askedHead is a head of so many nodes, the first of which the driver needs, that
// can be asked for commands. The function that it returns waits for what it has
// begun.
func askedHead(t *testing.T, size, needed int) (h *head, wait func()) {
	t.Helper()
	dir, err := signal.Create(bounded(t), signal.Place{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: size, Host: "n0"}, signal.Job{})
	if err == nil {
		err = dir.MakeExec(bounded(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Identity: testIdentity(0, size), Framework: framework.None{}, Times: DefaultTimes(), Team: Bounds{needed, needed}}
	h = &head{
		node: &node{cfg: cfg, id: cfg.Identity, dir: dir, log: zap.NewNop(), trail: trail.New()}, roster: newRoster(cfg), requests: newRequests(),
		nodes: dir.Watch(signal.Nodes, signal.HeadPace),
	}
	h.work, h.rest = context.WithCancel(t.Context())
	h.life = h.work
	return h, func() {
		h.rest()
		_ = h.tasks.Wait()
	}
}

// Who waits for a command is told which nodes will not answer any more, once it
// waits for no other: the job goes on without them.
func TestTellLost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		needed  int
		missing []int
		want    []int
	}{
		{"all that is waited for are lost", 1, []int{1, 2}, []int{1, 2}},
		{"one may answer", 1, []int{0, 1}, nil},
		{"nobody is waited for", 1, nil, nil},
		{"a job that can't do without any ends", 3, []int{1, 2}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h, wait := askedHead(t, 3, tc.needed)
			h.roster.open = true
			h.roster.joined[0] = true
			id, q := signal.NewExecID(), &asked{missing: make(map[int]bool)}
			for _, rank := range tc.missing {
				q.missing[rank] = true
			}
			h.tellLost(id, q)
			_ = h.tasks.Wait()
			var lost signal.ExecLost
			data, err := os.ReadFile(filepath.Join(h.dir.Path(), signal.Exec, id.LostName()))
			if err == nil {
				err = json.Unmarshal(data, &lost)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
			if !slices.Equal(lost.Ranks, tc.want) {
				t.Errorf("%v are told to be lost, want %v", lost.Ranks, tc.want)
			}
			wait()
		})
	}
}

// A job may run for months and be asked for something every minute: what is over
// is forgotten when no listing can show it any more, and not before.
func TestRequestsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, wait := askedHead(t, 1, 1)
		defer wait()
		r := h.requests
		look := func(ids ...signal.ExecID) {
			shown := make(map[signal.ExecID]*signal.ExecShown)
			for _, id := range ids {
				shown[id] = &signal.ExecShown{Request: true, Names: []string{id.RequestName()}}
			}
			h.heed(t.Context(), shown)
			synctest.Wait()
		}
		size := func() int {
			return len(r.known) + len(r.past) + len(r.batch) + len(r.awaited) + len(r.heard) + len(r.hung)
		}
		const many = 100
		old := signal.NewExecID()
		r.past[old] = time.Now()
		for range many {
			id := signal.NewExecID()
			raw, _ := id.Bytes()
			r.Called(raw, true)
			// It names no node, and so it is refused.
			if err := h.dir.Publish(t.Context(), signal.Exec, id.RequestName(), &signal.ExecRequest{}, false); err != nil {
				t.Fatal(err)
			}
			look(id)
			if r.known[id] == nil {
				t.Fatal("a request was not taken in")
			}
			r.Hung(raw, lifeline.Closed)
			look(id)
			r.Called(raw, true) // late
			look()
			if look(id, old); len(r.known) > 0 || r.pause() >= 0 {
				t.Fatalf("an old listing has it taken in once more: %v", r.known)
			}
			old = id
			time.Sleep(oldestListing / 10)
		}
		if got := size(); got > 20 {
			t.Errorf("%d of %d requests are remembered", got, many)
		}
		time.Sleep(2 * oldestListing)
		if look(); size() > 0 {
			t.Errorf("long afterwards there are %v, %v, %v, %v", r.known, r.past, r.heard, r.hung)
		}
	})
}

func TestLately(t *testing.T) {
	l, at := make(lately[int]), time.Now()
	for _, tc := range []struct {
		after  time.Duration
		things []int
		fresh  []int
		left   int
	}{
		{0, []int{1, 2}, []int{1, 2}, 2},
		{time.Second, []int{2, 3}, []int{3}, 3},
		{oldestListing, []int{1}, nil, 3}, // it is shown, however late
		{time.Second, nil, nil, 1},
		{oldestListing, nil, nil, 0},
	} {
		at = at.Add(tc.after)
		if fresh := l.fresh(tc.things, at); !slices.Equal(fresh, tc.fresh) || len(l) != tc.left {
			t.Errorf("of %v, %v are new, not %v; %d are remembered, not %d", tc.things, fresh, tc.fresh, len(l), tc.left)
		}
	}
}

// What was announced is looked for soon, and the less often the longer it does not
// come; what is carried out, now and then.
func TestPauseBetweenLooksForRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		known bool
		since []time.Duration // was announced
		want  time.Duration
	}{
		{"nothing", false, nil, -1},
		{"one that runs", true, nil, requestLook},
		{"one that was announced just now", false, []time.Duration{0}, 5 * time.Millisecond},
		{"a while ago", false, []time.Duration{100 * time.Millisecond}, 50 * time.Millisecond},
		{"long ago", false, []time.Duration{10 * time.Second}, requestLook},
		{"too long ago", false, []time.Duration{announcedTime + 1}, -1},
		{"two", false, []time.Duration{100 * time.Millisecond, 10 * time.Second}, 50 * time.Millisecond},
		{"one that runs, and one that was announced", true, []time.Duration{100 * time.Millisecond}, 50 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRequests()
				if tc.known {
					r.known[signal.NewExecID()] = new(asked)
				}
				for _, since := range tc.since {
					r.awaited[signal.NewExecID()] = time.Now().Add(-since)
				}
				if got := r.pause(); got != tc.want {
					t.Errorf("the next look comes after %s, want %s", got, tc.want)
				}
			})
		})
	}
}
