package exec

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// newRun creates the run directory of a job of size nodes, for its head.
func newRun(t *testing.T, size int) *signal.Dir {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	dir, err := signal.CreateRun(ctx, signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: size, Host: "n0"}, record.Job{})
	if err == nil {
		err = dir.EnsureSubdir(ctx, signal.ExecDir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNames(t *testing.T) {
	t.Parallel()
	id, other, dir := requestID("00ff00ff00ff00ff"), newRequestID(), newRun(t, 8)
	raw, ok := other.decode()
	if !ok || requestIDFrom(raw) != other || other == newRequestID() {
		t.Errorf("%s is no identity", other)
	}
	for _, bad := range []requestID{"", "00ff", "00FF00FF00FF00FF", "00ff00ff00ff00fg", "00ff00ff00ff00ff0"} {
		if _, ok := bad.decode(); ok {
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
	all := groupByRequest(slices.Concat(ours, of(other, "cancel"), of("x", "request"), []string{"job"}), "")
	want := requestFiles{
		requestSuffix: true, acceptedSuffix: true, "beat.000002": true, "beat.000011": true,
		partSuffix(dir, 3, 0): true, partSuffix(dir, 3, 1): true, endSuffix(dir, 3): true, endSuffix(dir, 0): true, "x": true,
	}
	if !reflect.DeepEqual(all[id], want) || all[id].newestBeat() != 11 {
		t.Errorf("of one request there is %v, not %v", all[id], want)
	}
	if names := all[id].fileNames(id); !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(ours))) {
		t.Errorf("its names are %v, not %v", names, ours)
	}
	if want := (requestFiles{cancelSuffix: true}); len(all) != 2 || !reflect.DeepEqual(all[other], want) {
		t.Errorf("of the other there is %v", all[other])
	}
	control := []string{
		"exec." + string(id), "exec." + string(id) + ".cancel", "exec." + string(other), "exec.x", "exec.3",
		"call." + string(id), "call.x", "abort.0001", string(other),
	}
	if got, want := groupByRequest(control, orderPrefix), (map[requestID]requestFiles{id: {"": true, cancelSuffix: true}, other: {"": true}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the orders are %v, not %v", got, want)
	}
	if got, want := groupByRequest(control, callPrefix), (map[requestID]requestFiles{id: {"": true}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the calls are %v, not %v", got, want)
	}
	if begin, cancel := id.orderName(""), id.orderName(cancelSuffix); begin != control[0] || cancel != control[1] {
		t.Errorf("the names of orders are %q and %q", begin, cancel)
	}
}

func TestLately(t *testing.T) {
	t.Parallel()
	l, at := make(recentRequests), time.Now()
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
		{maxListingAge, "1", false, 3}, // a listing still shows it, however late
		{time.Second, "4", true, 2},
		{2 * maxListingAge, "2", true, 1}, // forgotten
	} {
		at = at.Add(tc.after)
		if fresh := l.addIfNew(tc.id, at); fresh != tc.fresh || len(l) != tc.left {
			t.Errorf("%s is new: %t, not %t; %d are remembered, not %d", tc.id, fresh, tc.fresh, len(l), tc.left)
		}
	}
}
