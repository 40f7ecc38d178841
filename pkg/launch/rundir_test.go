package launch_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/launch"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestReportUnjoined checks that the head is told of a daemon that has ended before it joined, also
// if the run directory appears later, and not of one that has joined or was told to end.
func TestReportUnjoined(t *testing.T) {
	killed := process.Exit{Code: -1, Signal: syscall.SIGKILL}
	for _, tc := range []struct {
		name   string
		joined bool
		exit   process.Exit
		want   bool
	}{
		{"it was killed", false, killed, true},
		{"it has failed", false, process.Exit{Code: 66}, true},
		{"it has joined", true, killed, false},
		{"it was told to end", false, process.Exit{Code: 143}, false},
		{"it was interrupted", false, process.Exit{Code: 130}, false},
		{"the job goes on without it", false, process.Exit{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs := t.TempDir()
			run := launch.RunDir{Path: logs + "/j", Host: "h", Hosts: []string{"n0", "n1"}}
			begin := func() *signal.Dir {
				at := signal.Location{LogDir: logs, Run: "j", Key: "k", Size: 2, Host: "n0"}
				dir, err := signal.CreateRun(t.Context(), at, record.Job{})
				if err != nil {
					t.Error(err)
				}
				return dir
			}
			var dir *signal.Dir
			reported := make(chan error, 1)
			report := func() { reported <- run.ReportUnjoined(t.Context(), 1, tc.exit) }
			if tc.joined {
				dir = begin()
				name := signal.NodeName(1, 2, record.StateJoined)
				if err := dir.ForNode(1).WriteMark(t.Context(), signal.NodesDir, name); err != nil {
					t.Fatal(err)
				}
				go report()
			} else {
				go report()
				dir = begin()
			}
			select {
			case err := <-reported:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it has not returned")
			}
			name := signal.NodeName(1, 2, record.StateFailed)
			names, err := dir.ListNames(t.Context(), signal.NodesDir)
			if is := slices.Contains(names, name); err != nil || is != tc.want {
				t.Fatalf("the node has failed: %v, want %v (%v)", is, tc.want, err)
			}
			if !tc.want {
				return
			}
			var rec record.Failure
			if err := dir.ReadRecord(t.Context(), signal.NodesDir, name, &rec); err != nil {
				t.Fatal(err)
			}
			if rec.Kind != health.DaemonDied || rec.NodeIndex != 1 || rec.Host != "n1" ||
				!slices.Equal(rec.LostNodes, []int{1}) {
				t.Errorf("the record is %+v", rec)
			}
		})
	}
}
