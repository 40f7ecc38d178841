package signal

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestExecNames(t *testing.T) {
	t.Parallel()
	id := ExecID("00ff00ff00ff00ff")
	other := NewExecID()
	raw, ok := other.Bytes()
	if !ok || ExecIDOf(raw) != other || other == NewExecID() {
		t.Errorf("%s is no identity", other)
	}
	for _, bad := range []ExecID{"", "00ff", "00FF00FF00FF00FF", "00ff00ff00ff00fg", "00ff00ff00ff00ff0"} {
		if _, ok := bad.Bytes(); ok {
			t.Errorf("%q passes for an identity", bad)
		}
	}
	names := []string{
		id.RequestName(), id.TakenName(), id.BeatName(2), id.BeatName(11), id.PartName(3, 8, 0), id.PartName(3, 8, 1), id.EndName(3, 8), id.EndName(0, 8),
		string(id) + ".3.000001", string(id) + ".x", string(id), "job", other.CancelName(), other.LostName(), id.CallName(),
	}
	shown := newListing(names, 8, 1, time.Now()).Execs()
	want := ExecShown{
		Request: true, Taken: true, Beat: 11, Parts: map[int][]int{3: {0, 1}}, Ends: []int{3, 0}, Names: slices.Concat(names[:11]),
	}
	if !reflect.DeepEqual(*shown[id], want) {
		t.Errorf("of one request there is %+v, not %+v", *shown[id], want)
	}
	if s := shown[other]; len(shown) != 2 || !s.Cancel || !s.Lost || s.Request {
		t.Errorf("of the other there is %+v", s)
	}
	control := newListing([]string{OrdersName(12), OrdersName(3), "exec.x", "job", id.CallName(), "call.x", other.CallName(), "abort.0001"}, 8, 1, time.Now())
	if got := control.Orders(); !slices.Equal(got, []int{3, 12}) {
		t.Errorf("the orders are %v", got)
	}
	if got := control.Calls(); !slices.Equal(got, []ExecID{id, other}) {
		t.Errorf("the calls are %v", got)
	}
	if got := control.Aborts(); !slices.Equal(got, []int{1}) {
		t.Errorf("the aborts are %v", got)
	}
}
