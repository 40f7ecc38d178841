package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/twin"
)

// world is a launch of two nodes whose daemons the test simulates.
type world struct {
	*supervisor
	t       *testing.T
	signals chan os.Signal
	start   time.Time

	mu    sync.Mutex
	taken []string // the attempts, each with its start time
	said  []string
}

func newWorld(t *testing.T, node int, play func(w *world, cfg deps.Config) lifecycle.Exit) *world {
	t.Helper()
	w := &world{t: t, signals: make(chan os.Signal, 4), start: time.Now()}
	times := config.DefaultTimeouts()
	w.supervisor = &supervisor{
		isHead: node == 0,
		cfg: deps.Config{Config: config.Config{
			Identity: launcher.Identity{Launcher: launcher.LauncherRanks, NodeIndex: node, Size: 2,
				Host: fmt.Sprint("n", node), Hosts: []string{"n0", "n1"}, Job: "j", LaunchKey: "facts"},
			LogDir: filepath.Join(t.TempDir(), "logs"), Times: times, After: config.PostRun{Restarts: 100},
		}, Set: deps.Set{Signals: w.signals, Access: signal.Access{NoHints: true, Meter: new(signal.CallMeter)}}},
		runDaemon: func(_ context.Context, cfg deps.Config, _ roles.DaemonRole) lifecycle.Exit {
			w.mu.Lock()
			at := time.Since(w.start).Round(time.Second)
			w.taken = append(w.taken, fmt.Sprintf("%d at %s", cfg.Identity.Attempt, at))
			w.mu.Unlock()
			return play(w, cfg)
		},
		logWarning: func(words string, _ ...zapcore.Field) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.said = append(w.said, words)
		},
	}
	return w
}

// live runs all attempts of the launch and checks its code.
func (w *world) live(code int) {
	w.t.Helper()
	if got := w.runAttempts(w.t.Context(), roles.RoleHead); got != code {
		w.t.Errorf("the code is %d, not %d: %q", got, code, w.said)
	}
}

func (w *world) expectTaken(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.taken, want) {
		w.t.Errorf("took part in %q, not in %q", w.taken, want)
	}
}

// lost returns the end of an attempt by the loss of a node; another attempt follows.
func lost(cfg deps.Config, node int) lifecycle.Exit {
	f := health.NewFailure(health.DaemonDied, "node %d has died", node)
	f.LostNodes = []int{node}
	return lifecycle.Exit{Code: 76, Outcome: &lifecycle.Outcome{Code: 76, Reason: f.Message, Cause: &f.Failure,
		NextAttempt: lifecycle.NextAttempt{Number: cfg.Identity.Attempt + 1}}}
}

// make creates an attempt's directory, as the head does, and writes its result unless next is
// negative.
func (w *world) make(attempt, next int) *signal.Dir {
	w.t.Helper()
	dir, err := signal.CreateRun(w.t.Context(), w.attemptLocation(attempt), record.Job{})
	if err != nil {
		w.t.Fatal(err)
	}
	if next >= 0 {
		f := health.NewFailure(health.DaemonDied, "node 1 has died")
		f.LostNodes = []int{1}
		w.finish(dir, record.Result{Code: 76, Reason: f.Message, Cause: &f.Failure,
			Succession: record.Succession{NextAttempt: next}})
	}
	return dir
}

// finish publishes the result of an attempt.
func (w *world) finish(dir *signal.Dir, result record.Result) {
	w.t.Helper()
	if err := dir.PublishOnce(w.t.Context(), signal.NameResult, &result); err != nil {
		w.t.Error(err)
	}
}

// joined publishes that a daemon of a node, the process pid of this host, has joined.
func (w *world) joined(dir *signal.Dir, node, pid int) {
	w.t.Helper()
	name := signal.NodeName(node, 2, record.StateJoined)
	err := dir.ForNode(node).PublishRecord(w.t.Context(), signal.NodesDir, name, &record.Joined{PID: pid}, false)
	if err != nil {
		w.t.Fatal(err)
	}
}

// change publishes a record in a directory of dir later.
func (w *world) change(dir *signal.Dir, later time.Duration, sub string) {
	time.AfterFunc(later, func() {
		if err := dir.PublishRecord(w.t.Context(), sub, "changed", new(record.Mark), false); err != nil {
			w.t.Error(err)
		}
	})
}

// TestHead verifies that the head makes one attempt after the other: the first at once, also after an
// attempt whose gate was open for a long time, and each further one after a longer pause. It knows
// the newest progress of those before it.
func TestHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, func(w *world, cfg deps.Config) lifecycle.Exit {
			exit := lost(cfg, 1)
			p := cfg.Previous.History.Progress
			if (p != nil) != (cfg.Identity.Attempt > 2) || p != nil && p.MaxStep != 7 {
				w.t.Errorf("attempt %d is told of the progress %+v", cfg.Identity.Attempt, p)
			}
			switch cfg.Identity.Attempt {
			case 2:
				exit.Outcome.GateOpenTime, exit.Outcome.Progress = time.Hour, &record.Progress{MaxStep: 7}
			case 4:
				return lifecycle.Exit{Code: 3, Outcome: &lifecycle.Outcome{Code: 3, Orderly: true}}
			}
			lost := cfg.Previous.LostNodes
			if cfg.Identity.Attempt > 0 && (len(lost) != 1 || lost[0].NodeIndex != 1) {
				w.t.Errorf("attempt %d is told of %+v", cfg.Identity.Attempt, cfg.Previous)
			}
			return exit
		})
		w.live(3)
		w.expectTaken("0 at 0s", "1 at 0s", "2 at 1s", "3 at 1s", "4 at 2s")
	})
}

// TestRenewsChecks verifies that each attempt but the first in this process renews its checks.
func TestRenewsChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewed := 0
		w := newWorld(t, 0, func(_ *world, cfg deps.Config) lifecycle.Exit {
			end := &lifecycle.Outcome{Code: 75, Cause: &record.Failure{Kind: health.CheckFailed}}
			if cfg.Identity.Attempt < 2 {
				end.NextAttempt.Number = cfg.Identity.Attempt + 1
			}
			return lifecycle.Exit{Code: end.Code, Outcome: end}
		})
		w.cfg.RenewChecks = func(*deps.Config) error {
			renewed++
			return nil
		}
		w.live(75)
		if renewed != 2 {
			t.Errorf("the checks were renewed %d times, want twice", renewed)
		}
	})
}

// TestOrphanedAttempt verifies the result of an attempt whose daemons have all gone: the next one
// follows it, unless the restarts are used up.
func TestOrphanedAttempt(t *testing.T) {
	for restarts, want := range map[int]int{100: 3, 2: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 0, func(*world, deps.Config) lifecycle.Exit { return lifecycle.Exit{Code: 9} })
			w.cfg.After.Restarts = restarts
			w.make(0, 1)
			w.make(1, 2)
			orphan := w.make(2, -1)
			w.runAttempts(t.Context(), roles.RoleHead)
			var result record.Result
			if err := orphan.ReadRecord(t.Context(), "", signal.NameResult, &result); err != nil {
				t.Fatal(err)
			}
			if result.Code != 76 || result.NextAttempt != want || result.Cause == nil || result.Cause.Host != "n0" {
				t.Errorf("with %d restarts the result is %+v", restarts, result)
			}
			if len(w.taken) != min(1, want) || want > 0 && !strings.HasPrefix(w.taken[0], "3 at ") {
				t.Errorf("with %d restarts it took part in %q", restarts, w.taken)
			}
		})
	}
}

// TestHeadIsNotBack verifies that a worker leaves with the verdict's code if the head does not make
// the next attempt, and that it waits for less long if the head was lost and nothing restarts it.
func TestHeadIsNotBack(t *testing.T) {
	for _, tc := range []struct {
		lost       int
		relaunches bool
		within     string
	}{{0, false, "31s"}, {0, true, "3m10s"}, {1, false, "3m10s"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, func(_ *world, cfg deps.Config) lifecycle.Exit { return lost(cfg, tc.lost) })
			w.relaunches = tc.relaunches
			w.live(76)
			if took := time.Since(w.start); took.String() != tc.within {
				t.Errorf("it took %s, not %s", took, tc.within)
			}
			want := fmt.Sprintf("attempt 2 has not started within %s: node 0 (n0) has not been restarted; "+
				"the previous one ended: node %d has died", tc.within, tc.lost)
			if !slices.Contains(w.said, want) {
				t.Errorf("it said %q", w.said)
			}
		})
	}
}

// requeuer counts requests to requeue the job.
type requeuer struct{ asked, excluded int }

func (r *requeuer) RequeueJob(context.Context) error { r.asked++; return nil }

func (r *requeuer) ExcludeHosts(_ context.Context, hosts []string) error {
	r.excluded += len(hosts)
	return nil
}

// TestRequeueIfHeadIsNotBack verifies that the job is requeued, as without restarts, if the head was
// lost and nothing makes the next attempt: once, by the worker that has written the result.
func TestRequeueIfHeadIsNotBack(t *testing.T) {
	for _, tc := range []struct {
		name           string
		claimed, is    bool // this worker has written the result; the user wants requeues
		requeues, most int
		code, asked    int
	}{
		{"it has written the result", true, true, 0, 3, 76, 1},
		{"another worker has", false, true, 0, 3, 76, 0},
		{"nobody wants requeues", true, false, 0, 3, 76, 0},
		{"too many requeues", true, true, 3, 3, 69, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, func(_ *world, cfg deps.Config) lifecycle.Exit {
					exit := lost(cfg, 0)
					exit.Outcome.ClaimedResult, exit.Outcome.BadNodes = tc.claimed, []string{"n0"}
					return exit
				})
				by := new(requeuer)
				w.cfg.Identity.Restart = tc.requeues
				w.cfg.After.Requeue = config.RequeueConfig{OnFailure: tc.is, Most: tc.most, By: by}
				w.live(tc.code)
				if by.asked != tc.asked || by.excluded != tc.asked {
					t.Errorf("asked %d times, %d nodes excluded: %q", by.asked, by.excluded, w.said)
				}
				if len(w.said) == 0 {
					t.Error("it said nothing")
				}
			})
		})
	}
}

// TestToldToEnd verifies that a signal between two attempts ends the job: a worker leaves at once,
// and the head makes an attempt that ends at once, because the others wait for it.
func TestToldToEnd(t *testing.T) {
	for node, want := range [][]string{{"0 at 0s", "1 at 0s", "2 at 1s"}, {"0 at 0s"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, node, func(w *world, cfg deps.Config) lifecycle.Exit {
				if cfg.Identity.Attempt == 2 {
					told := []os.Signal{<-cfg.Signals}
					w.signals <- syscall.SIGCONT // later signals are received, too
					told = append(told, <-cfg.Signals)
					if !slices.Equal(told, []os.Signal{syscall.SIGTERM, syscall.SIGCONT}) {
						w.t.Errorf("it was told %v", told)
					}
					return lifecycle.Exit{Code: 143, EndRequested: true, Outcome: &lifecycle.Outcome{Code: 143,
						NextAttempt: lifecycle.NextAttempt{Number: 3}}}
				}
				return lost(cfg, 1)
			})
			time.AfterFunc(time.Second/2, func() { w.signals <- syscall.SIGPIPE; w.signals <- syscall.SIGTERM })
			w.live(143)
			w.expectTaken(want...)
		})
	}
}

// TestToldAfterTheDecision verifies that a head that is signalled after it has decided on another
// attempt ends that attempt for all daemons that wait for it.
func TestToldAfterTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, func(_ *world, cfg deps.Config) lifecycle.Exit {
			exit := lost(cfg, 1)
			if exit.EndRequested = true; cfg.Identity.Attempt == 1 {
				<-cfg.Signals
				exit.Code = 143
			}
			return exit
		})
		w.live(143)
		w.expectTaken("0 at 0s", "1 at 0s")
	})
}

// TestNextAttemptHasEnded verifies that a worker that comes too late for the next attempt, which has
// gone on without it, ends with the code of that attempt.
func TestNextAttemptHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, func(w *world, cfg deps.Config) lifecycle.Exit {
			w.make(0, 1)
			w.finish(w.make(1, -1), record.Result{})
			return lost(cfg, 1)
		})
		w.live(0)
		w.expectTaken("0 at 0s")
	})
}

// TestStartedAnew verifies that restarted daemons find their attempt.
func TestStartedAnew(t *testing.T) {
	other := twin.Start(t)
	for _, tc := range []struct {
		name       string
		rank       int
		before     func(w *world)
		relaunches bool
		code       int
		taken      []string
		says       string
	}{
		{"nothing is there", 1, func(*world) {}, false, 9, []string{"0 at 0s"}, ""},
		{"a worker of a run under way", 1, func(w *world) {
			w.make(0, 1)
			w.make(1, -1)
		}, false, 9, []string{"1 at 0s"}, ""},
		{"a head after the end", 0, func(w *world) { w.make(0, 1) }, false, 9, []string{"1 at 1s"}, ""},
		{"a worker after the very end", 1, func(w *world) {
			w.make(0, 1)
			w.make(1, 0)
		}, false, 76, nil, "run j-a1 has ended already, with code 76: node 1 has died"},
		{"a head of a job that is started anew", 0, func(w *world) { w.make(0, 0) }, true, 9, []string{"1 at 1s"}, ""},
		{"a worker whose death is noticed", 1, func(w *world) {
			dir := w.make(0, -1)
			w.joined(dir, 1, 0)
			time.AfterFunc(7*time.Second, func() {
				w.finish(dir, record.Result{Code: 76, Succession: record.Succession{NextAttempt: 1}})
				w.make(1, -1)
			})
		}, false, 9, []string{"1 at 7s"}, "an earlier daemon of node 1 (n1) takes part in attempt 1"},
		{"a second daemon of a rank", 1, func(w *world) {
			dir := w.make(0, -1)
			w.joined(dir, 1, 0)
			w.change(dir, 20*time.Second, signal.ControlDir)
		}, false, 65, nil, "has joined attempt 1 already, which has not ended after 3m1"},
		{"a second daemon of a rank on its host", 1, func(w *world) {
			w.joined(w.make(0, -1), 1, other)
		}, false, 65, nil, "start one daemon per host"},
		{"a second head on its host", 0, func(w *world) {
			w.joined(w.make(0, -1), 0, other)
		}, true, 65, nil, "start one daemon per host"},
		{"a head whose daemons are all gone", 0, func(w *world) { w.make(0, -1) }, false, 9, []string{"1 at 51s"},
			"the daemons of attempt 1 have ended"},
		{"a head of a name that was used", 0, func(w *world) {
			w.finish(w.make(0, -1), record.Result{})
		}, false, 66, nil, "give another --job-id"},
		{"another launch of a name that is done", 0, func(w *world) {
			w.finish(w.make(0, -1), record.Result{})
		}, true, 66, nil, "give another --job-id"},
		{"a head's pod of a job that is done", 0, func(w *world) {
			w.relaunchesEach = true
			w.finish(w.make(0, -1), record.Result{})
		}, true, 0, nil, "run j has ended already"},
		{"a worker of a job that is done", 1, func(w *world) {
			w.finish(w.make(0, -1), record.Result{})
		}, true, 0, nil, "run j has ended already"},
		{"a head of a job whose driver has failed", 0, func(w *world) {
			w.finish(w.make(0, -1), record.Result{Code: 3})
		}, true, 9, []string{"1 at 1s"}, ""},
		{"a worker that sees a part of the directory first", 1, func(w *world) {
			control := filepath.Join(w.make(0, -1).Path(), signal.ControlDir)
			_ = os.Rename(control, control+".hidden")
			time.AfterFunc(30*time.Second, func() { _ = os.Rename(control+".hidden", control) })
		}, false, 9, []string{"0 at 30s"}, ""},
		{"a head whose log directory cannot be used", 0, func(w *world) {
			_ = os.WriteFile(w.cfg.LogDir, nil, 0o600)
		}, false, 9, []string{"0 at 0s"}, ""},
		{"a head whose daemons go one after the other", 0, func(w *world) {
			dir := w.make(0, -1)
			w.change(dir, 20*time.Second, signal.NodesDir)
			w.change(dir, 60*time.Second, signal.ControlDir)
		}, false, 9, []string{"1 at 1m51s"}, "the daemons of attempt 1 have ended"},
		{"a spare daemon of a run that goes on", 1, func(w *world) {
			w.cfg.Team = membership.NodeRange{Min: 1, Max: 2}
			dir := w.make(0, -1)
			w.joined(dir, 1, 0)
			w.change(dir, 100*time.Second, signal.ControlDir)
			w.change(dir, 250*time.Second, signal.NodesDir)
		}, false, 65, nil, "has joined attempt 1 already, which has not ended after 7m2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.rank, func(*world, deps.Config) lifecycle.Exit { return lifecycle.Exit{Code: 9} })
				w.relaunches = tc.relaunches
				tc.before(w)
				w.live(tc.code)
				for i := range min(len(w.taken), len(tc.taken)) {
					attempt, got, _ := strings.Cut(w.taken[i], " at ")
					_, want, _ := strings.Cut(tc.taken[i], " at ")
					began, _ := time.ParseDuration(got)
					due, _ := time.ParseDuration(want)
					if late := began - due; 0 < late && late <= 2*maxPollInterval {
						w.taken[i] = attempt + " at " + want
					}
				}
				w.expectTaken(tc.taken...)
				if !strings.Contains(strings.Join(w.said, "\n"), tc.says) {
					t.Errorf("it said %q", w.said)
				}
			})
		})
	}
}

// TestRequeueContinuesCount verifies that the head of a requeued job knows the restarts before the
// requeue, the nodes that failed, and the progress.
func TestRequeueContinuesCount(t *testing.T) {
	history := &record.RestartHistory{Count: 2, Times: make([]time.Time, 2), NodeFailures: map[string]int{"n1": 1}}
	for _, tc := range []struct {
		name  string
		node  int
		had   *record.RestartHistory
		count int
	}{
		{"the head", 0, history, 2}, {"a worker, which does not decide", 1, history, 0},
		{"the head, without restarts before", 0, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.node, func(w *world, cfg deps.Config) lifecycle.Exit {
					h := cfg.Previous.History
					if h.Count != tc.count || len(h.Times) != tc.count || tc.count > 0 && h.NodeFailures["n1"] != 2 {
						w.t.Errorf("it is told of %+v", h)
					}
					isTold := cfg.Previous.History.Progress != nil
					if isTold != (tc.count > 0) || isTold && cfg.Previous.EarlierDuration != time.Hour {
						w.t.Errorf("it is told of the progress in %+v", cfg.Previous)
					}
					return lifecycle.Exit{}
				})
				// The last attempt before the requeue, which had two restarts before it.
				f := health.NewFailure(health.DaemonDied, "node 1 has died")
				f.LostNodes = []int{1}
				w.finish(w.make(2, -1), record.Result{
					Code: 76, Cause: &f.Failure, Progress: &record.Progress{MaxStep: 7, Elapsed: time.Hour},
					Succession: record.Succession{History: tc.had},
				})
				w.cfg.Identity.Restart = 1
				w.live(0)
			})
		})
	}
}

// TestEndRequestedDuringDuplicate verifies that a signal ends a daemon that waits for the end of an
// attempt in which another daemon of its node takes part.
func TestEndRequestedDuringDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, func(w *world, _ deps.Config) lifecycle.Exit {
			w.joined(w.make(0, -1), 1, 0)
			return lifecycle.Exit{Code: 65, Duplicate: true}
		})
		time.AfterFunc(2*time.Second, func() { w.signals <- syscall.SIGTERM })
		w.live(143)
		if want := "node 1 (n1) was told to end by SIGTERM"; !slices.Contains(w.said, want) {
			t.Errorf("it said %q", w.said)
		}
	})
}
