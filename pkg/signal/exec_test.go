package signal

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
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

// foreign is a share on which some names belong to somebody else.
type foreign struct {
	Share
	theirs string // what their paths end with
}

func (s foreign) Look(path string) (Facts, error) {
	facts, err := s.Share.Look(path)
	if strings.HasSuffix(path, s.theirs) {
		facts.Owner++
	}
	return facts, err
}

// What somebody asks for is believed where it is a whole record of this attempt
// in a file of the user's own that nobody else can write to.
func TestReadOwn(t *testing.T) {
	p := newPlace(t)
	p.Share = foreign{plain, "theirs"}
	d := create(t, p)
	if there, err := d.HasExec(within(t)); there || err != nil {
		t.Errorf("before anybody asks there is %t, %v", there, err)
	}
	for range 2 { // the second one's is there
		if err := d.MakeExec(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := d.HasExec(within(t)); !there || err != nil {
		t.Errorf("there is %t, %v", there, err)
	}
	exec := filepath.Join(d.Path(), Exec)
	for _, name := range []string{"ours", "theirs", "open"} {
		publish(t, d, Exec, name, &ExecRequest{Argv: []string{name}})
	}
	for _, err := range []error{os.Chmod(filepath.Join(exec, "open"), 0o620), os.Mkdir(filepath.Join(exec, "directory"), dirMode), os.Symlink("ours", filepath.Join(exec, "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(exec, "short"), `{"v":1,`)
	for _, tc := range []struct {
		name, says string
		absent     bool
	}{
		{"ours", "", false},
		{"theirs", "it belongs to", false},
		{"open", "its mode is 0620", false},
		{"directory", "it is no file", false},
		{"link", "it is no file", false},
		{"short", "no such record", true},
		{"missing", "cannot look at", true},
	} {
		var rec ExecRequest
		err := d.ReadOwn(within(t), tc.name, &rec)
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || Absent(err) != tc.absent) {
			t.Errorf("%s: %v, absent: %t", tc.name, err, Absent(err))
		}
		if err == nil && !slices.Equal(rec.Argv, []string{tc.name}) {
			t.Errorf("%s has %v", tc.name, rec.Argv)
		}
	}
	if err := os.Chmod(exec, 0o777); err != nil {
		t.Fatal(err)
	}
	if shown, err := d.LookExec(within(t)); err == nil {
		t.Errorf("a directory that is anybody's to write to shows %v", shown)
	}
}

// Who asks beats by one name, from the first on, and takes it away at the end.
func TestBeatExec(t *testing.T) {
	d := create(t, newPlace(t))
	if err := d.MakeExec(within(t)); err != nil {
		t.Fatal(err)
	}
	id := NewExecID()
	for n := range int64(3) {
		if err := d.BeatExec(within(t), id, n+1); err != nil {
			t.Fatal(err)
		}
		shown, err := d.LookExec(within(t))
		if err != nil || shown[id] == nil || shown[id].Beat != n+1 || len(shown[id].Names) != 1 {
			t.Fatalf("beat %d: %v, %v", n+1, shown[id], err)
		}
	}
	if err := d.Discard(within(t), Exec, id.BeatName(3), id.BeatName(9)); err != nil {
		t.Error(err)
	}
	if left := names(t, filepath.Join(d.Path(), Exec)); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
