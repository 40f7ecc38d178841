package request

import (
	"context"
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
	all := requestsShown(slices.Concat(ours, of(other, "cancel"), of("x", "request"), []string{"job"}), "")
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
	if want := (shown{whatCancel: true}); len(all) != 2 || !reflect.DeepEqual(all[other], want) {
		t.Errorf("of the other there is %v", all[other])
	}
	control := []string{
		"exec." + string(id), "exec." + string(id) + ".cancel", "exec." + string(other), "exec.x", "exec.3",
		"call." + string(id), "call.x", "abort.0001", string(other),
	}
	if got, want := requestsShown(control, kindOrder), (map[requestID]shown{id: {"": true, whatCancel: true}, other: {"": true}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the orders are %v, not %v", got, want)
	}
	if got, want := requestsShown(control, kindCall), (map[requestID]shown{id: {"": true}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the calls are %v, not %v", got, want)
	}
	if begin, cancel := id.order(""), id.order(whatCancel); begin != control[0] || cancel != control[1] {
		t.Errorf("the names of orders are %q and %q", begin, cancel)
	}
}

func TestLately(t *testing.T) {
	t.Parallel()
	l, at := make(lately), time.Now()
	for _, tc := range []struct {
		after time.Duration
		id    requestID
		fresh bool
		left  int
	}{
		{0, "1", true, 1},
		{0, "2", true, 2},
		{time.Second, "2", false, 2},
		{0, "3", true, 3},
		{oldestListing, "1", false, 3}, // it is shown, however late
		{time.Second, "4", true, 2},
		{2 * oldestListing, "2", true, 1}, // forgotten
	} {
		at = at.Add(tc.after)
		if fresh := l.fresh(tc.id, at); fresh != tc.fresh || len(l) != tc.left {
			t.Errorf("%s is new: %t, not %t; %d are remembered, not %d", tc.id, fresh, tc.fresh, len(l), tc.left)
		}
	}
}
