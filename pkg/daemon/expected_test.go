package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// listing returns a listing of [signal.NodesDir] that shows these names.
func listing(t *testing.T, names ...string) signal.Listing {
	t.Helper()
	dir, err := signal.CreateRun(bounded(t), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 8, Host: "n0", Access: signal.Access{NoHints: true}}, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := dir.PublishRecord(bounded(t), signal.NodesDir, name, &record.Mark{}, false); err != nil {
			t.Fatal(err)
		}
	}
	watch := dir.NewWatch(signal.NodesDir, signal.HeadPace)
	n := bare(t, deps.Config{}, nil)
	n.Background(watch.Run)
	defer func() {
		n.Close()
	}()
	seen, err := watch.WaitListing(bounded(t), func(signal.Listing) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestExpectedSandboxes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		step  bool
		names []string
		want  map[int]int64
	}{
		{"no step of their own", false, []string{"0001.sandbox"}, map[int]int64{}},
		{"ready ones", true, []string{"0001.sandbox", "0002.sandbox", "0002.sandbox-beat.000004"}, map[int]int64{1: 0, 2: 4}},
		{"one that comes up", true, []string{"0001.sandbox-beat.000004"}, map[int]int64{}},
		{"one that has failed", true, []string{"0001.sandbox", "0001.sandbox-failed"}, map[int]int64{}},
		{"a daemon's beat is no sandbox's", true, []string{"0001.sandbox", "0001.beat.000004"}, map[int]int64{1: 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, expectedSandboxes(listing(t, tc.names...), tc.step)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
