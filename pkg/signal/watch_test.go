package signal

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func shows(name string) func(Listing) bool {
	return func(l Listing) bool { return l.HasName(name) }
}

// memory returns a run directory whose listings a test provides, without real waits.
func memory(onList func(path string) ([]string, error)) *Dir {
	return &Dir{path: "/logs/123.0", access: Access{FS: &faulty{onList: onList}}.withDefaults()}
}

// TestWatchServesManyWaits verifies that the polls of one watch serve many waits: four goroutines
// wait for each name.
func TestWatchServesManyWaits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		local bool // the kernel sends notifications
	}{{"polled", false}, {"hinted", true}} {
		t.Run(tc.name, func(t *testing.T) {
			const waits = 64
			p := newPlace(t)
			fs := &faulty{}
			p.FS = fs
			d := create(t, p)
			d.fileSystem.Local = tc.local
			w := d.NewWatch(NodesDir, HeadPace)
			watching(t, w)
			before := fs.lists.Load()
			var waiting sync.WaitGroup
			var served atomic.Int64
			for i := range waits {
				waiting.Go(func() {
					name := NodeName(i/4, waits, record.StateServiceUp)
					l, err := w.WaitListing(within(t), shows(name))
					if err != nil || !l.HasName(name) || l.Polls < 1 || time.Since(l.PolledAt) > ceiling {
						t.Errorf("%s: %v, %v", name, l, err)
					}
					served.Add(1)
				})
			}
			for i := range waits / 4 {
				publish(t, d.ForNode(i), NodesDir, NodeName(i, waits, record.StateServiceUp), &record.Mark{})
			}
			waiting.Wait()
			lists := fs.lists.Load() - before
			// One more poll may be in progress.
			if looks := int64(w.LastListing().Polls); served.Load() != waits || lists > looks+1 {
				t.Errorf("%d waits were served by %d looks that cost %d listings", served.Load(), looks, lists)
			}
		})
	}
}

func TestWatchAnswersFromTheLastLook(t *testing.T) {
	d := create(t, newPlace(t))
	w := d.NewWatch(ControlDir, Pace{MinPause: time.Millisecond, MaxPause: time.Hour, Divisor: 2})
	if l := w.LastListing(); l.Polls != 0 || l.HasName(NameJob) {
		t.Errorf("before the first look: %v", l)
	}
	watching(t, w)
	if _, err := w.FollowListings(within(t), shows(NameJob)); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := w.FollowListings(over, shows(NameJob)); err != nil {
		t.Errorf("what has been seen is seen: %v", err)
	}
}

// TestWatchPollsBegun verifies that a listing with a higher number is from a poll that began later,
// also if one is in progress.
func TestWatchPollsBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 20 * time.Millisecond
		began := make(chan time.Time, 1000)
		w := memory(func(string) ([]string, error) {
			began <- time.Now()
			time.Sleep(took)
			return []string{"0001.up"}, nil
		}).NewWatch(NodesDir, HeadPace)
		t.Cleanup(func() { time.Sleep(took) }) // for the abandoned poll
		watching(t, w)
		for _, wait := range []time.Duration{took / 2, took + time.Millisecond} { // in a poll, and after one
			<-began
			time.Sleep(wait)
			asked, before := time.Now(), w.PollsBegun()
			l, err := w.FollowListings(t.Context(), func(l Listing) bool { return l.Polls > before })
			if from := l.PolledAt.Add(-took); err != nil || from.Before(asked) || l.Polls != before+1 {
				t.Errorf("poll %d, which began %s after the call, counts after %d: %v", l.Polls,
					from.Sub(asked), before, err)
			}
			for len(began) > 0 {
				<-began
			}
		}
	})
}

func TestWatchWaitEnds(t *testing.T) {
	over := errors.New("over")
	hang := make(chan struct{})
	for _, tc := range []struct {
		name string
		list func(string) ([]string, error)
		says []string // in addition to the cause
	}{
		{"what it waits for does not come", func(string) ([]string, error) { return []string{"0001.up"}, nil }, nil},
		{"the last look failed", func(string) ([]string, error) { return nil, syscall.ESTALE },
			[]string{syscall.ESTALE.Error(), "/logs/123.0/nodes"}},
		{"the look hangs", func(string) ([]string, error) { <-hang; return nil, nil },
			[]string{"the shared file system has not responded", "/logs/123.0/nodes", "59.99"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang = make(chan struct{})
				w := memory(tc.list).NewWatch(NodesDir, HeadPace)
				watching(t, w)
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, over)
				defer cancel()
				l, err := w.WaitListing(ctx, shows("0002.up"))
				if !errors.Is(err, over) || l.HasName("0002.up") {
					t.Fatalf("got %v, %v", l, err)
				}
				for _, text := range tc.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%q does not say %q", err, text)
					}
				}
				if tc.says == nil && err != over {
					t.Errorf("got %v, where there is nothing to add", err)
				}
				close(hang)
			})
		})
	}
}

// TestWatchStall verifies that a file system that hangs counts as silent; the watch ends with its
// context, and continues when the file system does.
func TestWatchStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		hang := make(chan struct{})
		w := memory(func(string) ([]string, error) {
			if looks.Add(1) == 1 {
				<-hang
			}
			return []string{"0001.up"}, nil
		}).NewWatch(NodesDir, HeadPace)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()
		time.Sleep(time.Minute)
		if silence := w.UnresponsiveFor(); silence < time.Minute-HeadPace.MinPause || looks.Load() != 1 {
			t.Errorf("silent for %s after %d looks", silence, looks.Load())
		}
		close(hang)
		time.Sleep(2 * HeadPace.MaxPause)
		if silence := w.UnresponsiveFor(); silence != 0 || looks.Load() < 2 {
			t.Errorf("a minute's hang earned a long pause: silent for %s after %d looks", silence, looks.Load())
		}
		cancel()
		<-ended
	})
}

func TestWatchEndsWhileTheShareHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		w := memory(func(string) ([]string, error) { <-hang; return nil, nil }).NewWatch(NodesDir, HeadPace)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		w.Run(ctx)
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("it ended after %s", took)
		}
		close(hang)
	})
}

// TestWatchRecovers verifies that a wait continues after temporary errors, is not woken by them,
// and that they count as silence.
func TestWatchRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, asked := 0, 0
		w := memory(func(string) ([]string, error) {
			if looks++; looks <= 5 {
				return nil, syscall.EIO
			}
			return []string{"0001.up"}, nil
		}).NewWatch(NodesDir, HeadPace)
		watching(t, w)
		l, err := w.WaitListing(t.Context(), func(l Listing) bool {
			asked++
			return l.HasName("0001.up")
		})
		if err != nil || l.Polls != 6 || asked != 1 {
			t.Errorf("got %v, %v; asked %d times", l, err, asked)
		}
	})
}

// TestWatchBearsManyNudges verifies that a thousand notifications at once do not cause a thousand
// polls.
func TestWatchBearsManyNudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const look = 10 * time.Millisecond
		var looks atomic.Int64
		w := memory(func(string) ([]string, error) {
			looks.Add(1)
			time.Sleep(look)
			return []string{"0001.up"}, nil
		}).NewWatch(NodesDir, HeadPace)
		t.Cleanup(func() { time.Sleep(look) }) // for the abandoned poll
		watching(t, w)
		for range 1000 {
			w.NotifyChange()
			time.Sleep(time.Millisecond)
		}
		// The pause is as long as a poll, less a random part of up to a quarter.
		if most := int64(time.Second/(look+look*3/4)) + 1; looks.Load() > most {
			t.Errorf("%d looks of %s in a second, want %d at most", looks.Load(), look, most)
		}
	})
}

// TestWatchFindsTheShareAgain verifies that a file system that fails polls for a while, each after
// a hang, counts as silent for about that time, and is not polled more often than during a job's
// start.
func TestWatchFindsTheShareAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hang  time.Duration // of each poll
		looks int64         // number of failing polls
		most  time.Duration // of the silence
	}{
		{"refused at once", 0, 300, 300 * time.Second},
		{"evicted", 4500 * time.Millisecond, 1, 4510 * time.Millisecond},
		{"hanging again and again", 4500 * time.Millisecond, 10, 10 * 5500 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var looks, bad atomic.Int64
				w := memory(func(string) ([]string, error) {
					looks.Add(1)
					if bad.Add(-1) >= 0 {
						time.Sleep(tc.hang)
						return nil, syscall.EIO
					}
					return []string{NameJob}, nil
				}).NewWatch(ControlDir, WorkerPace(4))
				watching(t, w)
				w.SlowDown(40 * time.Second)
				time.Sleep(time.Hour)
				bad.Store(tc.looks)
				looks.Store(0)
				w.NotifyChange()
				time.Sleep(time.Millisecond)
				var silence time.Duration
				for w.UnresponsiveFor() > 0 {
					silence = max(silence, w.UnresponsiveFor())
					time.Sleep(time.Millisecond)
				}
				if silence > tc.most || looks.Load() != tc.looks+1 {
					t.Errorf("silent for %s in %d looks, want %s in %d at most", silence,
						looks.Load(), tc.most, tc.looks+1)
				}
				if least := time.Duration(tc.looks-20) * 3 * time.Second / 4; silence < least {
					t.Errorf("%d looks failed within %s: that is too often", tc.looks, silence)
				}
			})
		})
	}
}

// TestWatchRelaxWakesThePause verifies that a faster pace applies at once: it ends a longer pause
// that has begun.
func TestWatchRelaxWakesThePause(t *testing.T) {
	const shorter = time.Second
	synctest.Test(t, func(t *testing.T) {
		var looked atomic.Pointer[time.Time]
		w := memory(func(string) ([]string, error) {
			now := time.Now()
			looked.Store(&now)
			return nil, nil
		}).NewWatch(ControlDir, Pace{MinPause: time.Hour, MaxPause: time.Hour, Divisor: 2})
		watching(t, w)
		time.Sleep(90 * time.Minute)
		asked := time.Now()
		w.SlowDown(shorter)
		time.Sleep(shorter)
		synctest.Wait()
		if last := looked.Load(); last == nil || last.Before(asked) {
			t.Errorf("%s after a pace of it was asked for, the last look was at %v", shorter, last)
		}
	})
}

// TestWatchRelaxAfterANudge notifies the watch of one of many nodes and relaxes its pace before the
// resulting poll, or while an older poll is in progress: the change is detected nevertheless.
func TestWatchRelaxAfterANudge(t *testing.T) {
	const most = 300 * time.Millisecond
	for _, tc := range []struct {
		name  string
		slow  time.Duration // duration of each poll
		after time.Duration // from the start of a poll to the notification
	}{
		{"before the next look", 0, time.Millisecond},
		{"while a look is under way", 20 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var there atomic.Bool
				looks := make(chan struct{}, 1000)
				w := memory(func(string) (names []string, err error) {
					looks <- struct{}{}
					if there.Load() {
						names = []string{NameOrderlyEnd}
					}
					time.Sleep(tc.slow)
					return names, nil
				}).NewWatch(ControlDir, WorkerPace(1024))
				watching(t, w)
				<-looks
				time.Sleep(tc.after)
				there.Store(true)
				w.NotifyChangeWithin(most)
				w.SlowDown(40 * time.Second)
				began := time.Now()
				last, err := w.FollowListings(within(t), func(l Listing) bool { return l.HasName(NameOrderlyEnd) })
				if took := time.Since(began); err != nil || took > 2*most {
					t.Errorf("it was seen after %s, by look %d: %v", took, last.Polls, err)
				}
			})
		})
	}
}

func TestHint(t *testing.T) {
	d := create(t, newPlace(t))
	nodes := filepath.Join(d.Path(), NodesDir)
	for _, tc := range []struct {
		name  string
		path  string
		local bool
		hints bool
	}{
		{"local", nodes, true, true},
		{"shared", nodes, false, false},
		{"missing", nodes + "-missing", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hints, stop := files.WatchNames(tc.path, tc.local)
			put(t, filepath.Join(nodes, ".0001."+tc.name), "a temporary")
			if ctxutil.SleepContext(within(t), 20*time.Millisecond) && len(hints) > 0 {
				t.Error("a hint of a temporary")
			}
			publish(t, d, NodesDir, "0001."+tc.name, &record.Mark{})
			if tc.hints {
				// The kernel sends notifications in order: one record, one notification.
				select {
				case <-hints:
				case <-within(t).Done():
					t.Error("no hint")
				}
			}
			stop()
			select {
			case <-hints:
				t.Error("a hint of nothing")
			default:
			}
		})
	}
}
