package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/test/hostile"
)

// TestTempDirHangs checks jobs in which the disk with the daemons' private directories becomes
// unresponsive.
func TestTempDirHangs(t *testing.T) {
	t.Parallel()
	terminated := health.OutcomeOfKind(health.Terminated).Code
	for _, tc := range []struct {
		name    string
		phase   string // the phase in which the disk begins to hang
		happens func(j *job)
		codes   [size]int
	}{
		{"and the driver ends", driver, func(j *job) { j.free(driver) }, [size]int{driversCode}},
		{"and all are told to end", driver, (*job).tellToEnd,
			[size]int{terminated, terminated, terminated, terminated}},
		{"before the workers have theirs", head, func(j *job) {
			j.free(head)
			j.shows("control/head")
			time.Sleep(time.Second) // otherwise the signal would arrive before they request it
			j.tellToEnd()
		}, [size]int{terminated, terminated, terminated, terminated}},
	} {
		t.Run(slug(tc.name), func(t *testing.T) {
			t.Parallel()
			j := newJob(t, func(int) hostile.Knobs { return hostile.Knobs{} })
			disk := j.mountTemp()
			for _, p := range phases {
				if p != tc.phase {
					j.free(p)
				}
			}
			j.start(driversCode)
			j.await(tc.phase)
			j.must(disk.Stall(hostile.Unread))
			j.endTurn()
			begin := time.Now()
			tc.happens(j)
			j.allGone()
			if took := time.Since(begin); took > tempTime {
				t.Errorf("it took %s to end, want %s at most", took, tempTime)
			}
			var codes [size]int
			for node, d := range j.daemons {
				codes[node] = d.code()
			}
			if codes != tc.codes {
				t.Errorf("it ended with %v, want %v", codes, tc.codes)
			}
			said, err := os.ReadFile(j.path("err.0"))
			j.must(err)
			logged := j.text("logs/daemon-0000.log")
			if want := "cannot remove the temporary directory"; !strings.Contains(
				string(said)+logged, want) {
				t.Errorf("no node reports %q: %s", want, said)
			}
			j.nothingLeft()
		})
	}
}

// tempTime is the maximum time for the end of a job whose TMPDIR hangs: 10 s for the removal, plus
// grace periods and a margin for a busy machine.
const tempTime = 25 * time.Second

func (j *job) tellToEnd() {
	j.t.Helper()
	for _, d := range j.daemons {
		j.must(d.cmd.Process.Signal(syscall.SIGTERM))
	}
}

// mountTemp mounts a separate file system for the daemons' private directories.
func (j *job) mountTemp() *hostile.Mount {
	j.t.Helper()
	j.makeTemp("disk")
	disk, err := server.Mount(j.t.Context(), j.path("disk"), j.path("tmp"),
		hostile.Knobs{NoFlush: true})
	j.must(err)
	j.t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			j.t.Error(err)
		}
	})
	// After the first close, the kernel knows that it need not report closes. Otherwise a daemon that
	// ends while its check has a file open on the disk would wait for the close.
	j.must(os.WriteFile(filepath.Join(j.path("tmp"), "closed"), nil, 0o600))
	return disk
}
