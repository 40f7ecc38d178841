package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnawaited(t *testing.T) {
	zombie := procStat{pid: 20, ppid: 1, start: 100, dead: true}
	before := map[processID]bool{{20, 100}: true}
	for _, tc := range []struct {
		name    string
		all     []procStat
		before  map[processID]bool
		ended   int // number of processes to remember
		nobodys []int
	}{
		{"it has just ended: somebody may be about to wait", []procStat{zombie}, nil, 1, nil},
		{"it had ended at the last census, too", []procStat{zombie}, before, 1, []int{20}},
		{"another had its number", []procStat{{pid: 20, ppid: 1, start: 101, dead: true}}, before, 1, nil},
		{"another's child", []procStat{{pid: 20, ppid: 7, start: 100, dead: true}}, before, 0, nil},
		{"it runs", []procStat{{pid: 20, ppid: 1, start: 100}}, before, 0, nil},
		{"gone meanwhile", nil, before, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ended, nobodys := findUnawaited(tc.all, 1, tc.before)
			if len(ended) != tc.ended || !slices.Equal(nobodys, tc.nobodys) {
				t.Errorf("got %v and %v, want %d and %v", ended, nobodys, tc.ended, tc.nobodys)
			}
		})
	}
}

// TestRepeat verifies that scans follow soon after a start, then less and less often, and that many
// starts neither delay them nor make them expensive.
func TestRepeat(t *testing.T) {
	const minute = time.Minute - minScanInterval/2 // so that no scan is due at the end
	for _, tc := range []struct {
		name   string
		starts time.Duration // between two starts; 0: none
		took   time.Duration // duration of each scan
		want   int           // scans within a minute
	}{
		{"no start", 0, 0, 9},
		{"starts all the time", 300 * time.Millisecond, 0, 59},
		{"a dear one", 0, 100 * time.Millisecond, 6},
		{"dear ones and starts", 300 * time.Millisecond, 100 * time.Millisecond, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), minute)
				defer cancel()
				started, counted := make(chan struct{}, 1), 0
				for at := tc.starts; at > 0 && at < minute; at += tc.starts {
					time.AfterFunc(at, func() {
						select {
						case started <- struct{}{}:
						default:
						}
					})
				}
				repeatAtIntervals(ctx, started, func() time.Duration {
					counted++
					time.Sleep(tc.took)
					return tc.took
				})
				if counted != tc.want {
					t.Errorf("there were %d censuses, want %d", counted, tc.want)
				}
			})
		})
	}
}

func TestReadSelf(t *testing.T) {
	for _, tc := range []struct {
		name, number, want string
	}{
		{"its own", "", ""},
		{"of another namespace", "12345678", "12345678, but it is process "},
		{"none", "-", "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			link := "/proc/self"
			if tc.number != "" {
				link = filepath.Join(t.TempDir(), "self")
			}
			if strings.Trim(tc.number, "-") != "" {
				if err := os.Symlink(tc.number, link); err != nil {
					t.Fatal(err)
				}
			}
			self, err := verifySelf(link, os.Getpid())
			if tc.want == "" && (err != nil || self.pid != os.Getpid()) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, %v, want %q", self, err, tc.want)
			}
		})
	}
}
