package request

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// newRun makes the run directory of a job of so many nodes, as its head sees it.
func newRun(t *testing.T, size int) *signal.Dir {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	dir, err := signal.Create(ctx, signal.Place{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: size, Host: "n0"}, signal.Job{})
	if err == nil {
		err = dir.Make(ctx, signal.Exec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNames(t *testing.T) {
	t.Parallel()
	id, other, dir := requestID("00ff00ff00ff00ff"), newID(), newRun(t, 8)
	raw, ok := other.raw()
	if !ok || idOf(raw) != other || other == newID() {
		t.Errorf("%s is no identity", other)
	}
	for _, bad := range []requestID{"", "00ff", "00FF00FF00FF00FF", "00ff00ff00ff00fg", "00ff00ff00ff00ff0"} {
		if _, ok := bad.raw(); ok {
			t.Errorf("%q passes for an identity", bad)
		}
	}
	of := func(id requestID, whats ...string) (names []string) {
		for _, what := range whats {
			names = append(names, string(id)+"."+what)
		}
		return names
	}
	ours := of(id, "request", "taken", "beat.000002", "beat.000011", "0003.000000", "0003.000001", "0003.end", "0000.end", "x")
	all := requestsShown(slices.Concat(ours, of(other, "cancel", "lost"), of("x", "request"), []string{"job"}))
	want := shown{
		whatRequest: true, whatTaken: true, "beat.000002": true, "beat.000011": true,
		part(dir, 3, 0): true, part(dir, 3, 1): true, end(dir, 3): true, end(dir, 0): true, "x": true,
	}
	if !reflect.DeepEqual(all[id], want) || all[id].beat() != 11 {
		t.Errorf("of one request there is %v, not %v", all[id], want)
	}
	if names := all[id].names(id); !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(ours))) {
		t.Errorf("its names are %v, not %v", names, ours)
	}
	if want := (shown{whatCancel: true, whatLost: true}); len(all) != 2 || !reflect.DeepEqual(all[other], want) {
		t.Errorf("of the other there is %v", all[other])
	}
	for _, name := range []string{"exec.000012", "exec.000003", "exec.x", "exec.3", "call." + string(id), "call.x", "call." + string(other), "abort.0001"} {
		if err := os.WriteFile(filepath.Join(dir.Path(), signal.Control, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	watch, ctx := dir.Watch(signal.Control, signal.HeadPace), t.Context()
	go watch.Run(ctx)
	control, err := watch.Wait(ctx, func(signal.Listing) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(slices.Values(ordersGiven(control))); !slices.Equal(got, []int{3, 12}) || ordersName(3) != "exec.000003" {
		t.Errorf("the orders are %v", got)
	}
	if got := slices.Sorted(slices.Values(requestsCalled(control))); !slices.Equal(got, slices.Sorted(slices.Values([]requestID{id, other}))) {
		t.Errorf("the calls are %v", got)
	}
}

func TestLately(t *testing.T) {
	t.Parallel()
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
