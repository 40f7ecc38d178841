package instances

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// switches are files that the probes of processes look for.
type switches struct {
	t   *testing.T
	dir string
}

func newSwitches(t *testing.T) switches { return switches{t, t.TempDir()} }

// set makes the probe of a name succeed or fail.
func (s switches) set(name string, on bool) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if !on {
		_ = os.Remove(path)
		return
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// flap makes the probe of a name fail long enough for a record, and succeed again.
func (s switches) flap(name string) {
	s.t.Helper()
	s.set(name, false)
	time.Sleep(12 * time.Second)
	s.set(name, true)
	time.Sleep(12 * time.Second)
	synctest.Wait()
}

// statuses returns the states of all instances, in the order of their numbers.
func (r *run) statuses() (all []roles.InstanceStatus) {
	r.head.mu.Lock()
	defer r.head.mu.Unlock()
	for _, state := range r.head.instances {
		all = append(all, state.Status)
	}
	return all
}

// awaitPrimaries waits in the background for the end of the primary roles.
func (r *run) awaitPrimaries() <-chan error {
	ended := make(chan error, 1)
	r.nodes[0].Background(func(ctx context.Context) {
		_, err := r.head.AwaitPrimaries(ctx)
		ended <- err
	})
	return ended
}

// kill makes a node publish nothing more and see no more orders. Its processes go on.
func (r *run) kill(nodes ...int) {
	r.t.Helper()
	for _, node := range nodes {
		r.nodes[node].freeze()
	}
	earlier := r.fault
	r.setFault(func(op signal.Op, path string) error {
		for _, node := range nodes {
			if name := fmt.Sprintf("%04d.", node); strings.HasPrefix(filepath.Base(path), name) {
				return os.ErrPermission
			}
		}
		if earlier != nil {
			return earlier(op, path)
		}
		return nil
	})
}

// spareRun runs a test with nodes of which some are spares.
func spareRun(t *testing.T, nodes, spares int, file string, test func(r *run)) {
	t.Helper()
	inBubbleOf(t, func(r *run) { r.spares = spares }, nodes, file, test)
}

// TestSpareWithLink checks that a spare without a peer link takes a place only if no other can.
func TestSpareWithLink(t *testing.T) {
	for spares, want := range map[int]string{1: "n2", 2: "n3"} {
		t.Run(fmt.Sprint(spares), func(t *testing.T) {
			spareRun(t, 2+spares, spares, `
  - {name: store, nodes: 2, per-node: 1, command: serve, restarts: 3}
`, func(r *run) {
				r.openGate()
				links := health.NewLinks(health.LinksConfig{Interval: time.Hour}, time.Now())
				links.SetConnected(1, time.Now())
				links.SetConnected(3, time.Now())
				r.head.cfg.Links = links
				r.kill(1)
				r.lose(false, 1)
				time.Sleep(time.Minute)
				if got := r.find("store.1.0.g1").node; got != want {
					t.Errorf("it runs on %s, want %s", got, want)
				}
			})
		})
	}
}

// TestLateSpare checks that a node that makes its offer after the plan is a spare, unless it is lost
// before that.
func TestLateSpare(t *testing.T) {
	for isLost, want := range map[bool]roles.InstanceStatus{false: roles.StatusReady, true: roles.StatusLost} {
		t.Run(fmt.Sprint("lost ", isLost), func(t *testing.T) {
			inBubbleOf(t, func(r *run) { r.spares, r.late = 1, true }, 3, `
  - {name: store, nodes: 2, per-node: 1, command: serve, restarts: 3, require: {start: all, run: 1}}
`, func(r *run) {
				r.openGate()
				if isLost {
					r.lose(false, 2)
				}
				name := signal.NodeName(2, 3, record.StateOffer)
				offer := &record.Offer{Address: "10.0.0.3", FirstPort: 30000}
				if err := r.nodes[2].Publish(signal.NodesDir, name, offer, false); err != nil {
					t.Fatal(err)
				}
				r.later()
				r.kill(1)
				r.lose(false, 1)
				time.Sleep(time.Minute)
				r.wantStatuses(roles.StatusReady, want)
			})
		})
	}
}

// TestSpareStartsNothingThatIsOver checks that a spare starts neither what has ended with 0 on the
// lost node nor what is given up with it, and prepares itself as the lost node was.
func TestSpareStartsNothingThatIsOver(t *testing.T) {
	spareRun(t, 3, 1, `
  - {name: prepare, nodes: all, command: prepare, oneshot: true}
  - {name: train, nodes: all, per-node: 2, command: train, primary: true, restarts: 1}
  - {name: plain, nodes: all, command: serve, require: {start: all, run: 0}}
  - {name: serve, nodes: all, command: serve, restarts: 1}
`, func(r *run) {
		r.exit("prepare.0.0.g0", 0)
		r.exit("prepare.1.0.g0", 0)
		r.later()
		r.openGate()
		r.later()
		r.exit("train.2.0.g0", 0)
		r.later()
		r.kill(1)
		r.lose(false, 1)
		time.Sleep(time.Minute)
		var started []string
		r.mu.Lock()
		for _, one := range r.tasks {
			if one.node == "n2" {
				started = append(started, one.name)
			}
		}
		r.mu.Unlock()
		slices.Sort(started)
		r.want("starts on the spare", started, "prepare.1.0.g0", "serve.1.0.g1", "train.3.0.g1")
	})
}

// TestSpareOfOtherComponent checks that only a spare of the component of a lost node takes its
// place.
func TestSpareOfOtherComponent(t *testing.T) {
	spareRun(t, 5, 2, `
  - {name: store, nodes: 1, command: serve}
  - name: serve
    nodes: 2
    nodes-per-instance: 1
    command: serve
    restarts: 1
    require: {start: all, run: 1}
`, func(r *run) {
		r.openGate()
		r.head.update(func() { r.head.spares[0].Group = 1 })
		r.kill(1, 2)
		r.lose(false, 1)
		r.later()
		if one := r.find("serve.0.0.g1"); one.node != "n4" {
			t.Errorf("it runs on %s", one.node)
		}
		r.lose(false, 2)
		r.later()
		r.wantStatuses(roles.StatusReady, roles.StatusReady, roles.StatusLost)
	})
}

// TestNamesAreBounded checks that the names of an instance that is started again and again do not
// fill the run directory, on one node and on several, and neither do changes of readiness.
func TestNamesAreBounded(t *testing.T) {
	const restarts = 30
	s := newSwitches(t)
	s.set("ready", true)
	inBubble(t, 2, fmt.Sprintf(`
  - {name: single, nodes: head, command: serve, restarts: {max: %[1]d, backoff: 1s..1s}}
  - {name: pair, nodes: 2, nodes-per-instance: 2, command: serve, restarts: {max: %[1]d, backoff: 1s..1s}}
  - {name: flaps, nodes: head, command: serve, ready: "file:%[2]s/ready"}
`, restarts, s.dir), func(r *run) {
		r.openGate()
		for generation := range restarts {
			r.exit(fmt.Sprintf("single.0.0.g%d", generation), 1)
			r.exit(fmt.Sprintf("pair.0.1.g%d", generation), 1)
			s.flap("ready")
		}
		r.goesOn()
		for dir, most := range map[string]int{signal.NodesDir: 24, signal.ControlDir: 18} {
			if names := r.names(dir, ""); len(names) > most {
				t.Errorf("%d names in %s after %d restarts: %v", len(names), dir, restarts, names)
			}
		}
	})
}

// TestStall checks that a run in which nothing runs and nothing is due ends with an internal error,
// but not while an instance may be starting or the run is busy.
func TestStall(t *testing.T) {
	for _, isBusy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy %t", isBusy), func(t *testing.T) {
			inBubble(t, 2, `
  - {name: train, nodes: 2, nodes-per-instance: 1, primary: true, command: train, ready: {probe: "tcp:9", timeout: 2m}}
`, func(r *run) {
				r.head.cfg.IsBusy = func() bool { return isBusy }
				r.isDead.Store(true) // nothing that the nodes publish appears
				r.kill(0, 1)
				r.openGate()
				r.wantStall(2*time.Minute+10*time.Second+time.Minute, isBusy)
			})
		})
	}
}

// wantStall checks that the run ends with an internal error a minute after something was due last, or
// does not end if it is busy.
func (r *run) wantStall(due time.Duration, isBusy bool) {
	r.t.Helper()
	last := time.Until(r.began.Add(due + stallTimeout))
	r.sleep(last - time.Second)
	if cause := r.cause(); cause != nil {
		r.t.Errorf("ended too early: %s", cause.Message)
	}
	r.sleep(2*stallInterval + 2*time.Second)
	switch cause := r.cause(); {
	case isBusy && cause != nil:
		r.t.Errorf("ended although it was busy: %s", cause.Message)
	case !isBusy && (cause == nil || cause.Kind != health.Internal):
		r.t.Errorf("the cause is %+v", cause)
	}
}

// TestStallOfRestart checks the same for an instance that was to start again: the back-off, the grace
// period and the start are over before.
func TestStallOfRestart(t *testing.T) {
	inBubble(t, 2, `
  - {name: train, nodes: 1, primary: true, command: train, restarts: {max: 1, backoff: 1m..1m},
      ready: {probe: "file:/", timeout: 2m}}
`, func(r *run) {
		r.openGate()
		r.began = time.Now()
		r.exit("train.0.0.g0", 1)
		r.later()
		r.isDead.Store(true)
		r.kill(0)
		r.wantStall(time.Minute+10*time.Second+2*time.Minute+time.Minute, false)
	})
}

// TestNothingStartsWhileEnding checks that what is due when the run begins to end does not start
// any more: instances after their back-off, one whose place a spare would take, and a role whose
// predecessor ends.
func TestNothingStartsWhileEnding(t *testing.T) {
	spareRun(t, 4, 1, `
  - {name: cache, nodes: head, command: serve, restarts: {max: 1, backoff: 10s..10s}}
  - {name: slow, nodes: head, command: serve, after: [cache], grace: 1h, env: {IGNORE_TERM: "1"}}
  - {name: setup, nodes: head, command: prepare, oneshot: true}
  - {name: late, nodes: head, command: serve, after: [setup]}
  - name: pair
    nodes: 2
    nodes-per-instance: 2
    command: serve
    restarts: {max: 1, backoff: 10s..10s}
  - {name: single, nodes: 1, command: serve, restarts: 1}
`, func(r *run) {
		r.openGate()
		started := r.starts()
		r.head.cfg.SilentDelay = 10 * time.Second
		r.exit("cache.0.0.g0", 1)
		r.exit("pair.0.1.g0", 1)
		r.kill(2)
		r.lose(true, 2)
		r.later()
		r.nodes[0].CancelRun(&lifecycle.Outcome{Orderly: true})
		r.nodes[0].Background(func(ctx context.Context) { r.head.StopInOrder(ctx, false) })
		r.exit("setup.0.0.g0", 0)
		r.sleep(time.Minute)
		r.want("starts", r.starts(), started...)
		r.want("orders", r.names(signal.ControlDir, "start"), "start.slow")
		r.want("plans", r.names(signal.ControlDir, signal.SeriesPlan.Name(1)))
		r.exit("slow.0.0.g0", 0)
	})
}

// TestFinalFailures checks after which failures a start is not tried again.
func TestFinalFailures(t *testing.T) {
	for _, tc := range []struct {
		failure record.Failure
		final   bool
	}{
		{record.Failure{Kind: health.Usage}, true},
		{record.Failure{Kind: health.Launch}, true},
		{record.Failure{Kind: health.Signalled, ChildExit: record.ChildExit{ExitText: "exit code 1"}}, true},
		{record.Failure{Code: 126}, true},
		{record.Failure{Code: 127}, true},
		{record.Failure{Code: 127, ChildExit: record.ChildExit{ExitText: "exit code 127"}}, false},
		{record.Failure{Kind: health.Usage, ChildExit: record.ChildExit{ExitText: "exit code 64"}}, false},
		{record.Failure{Code: 1}, false},
	} {
		if got := isFinal(tc.failure); got != tc.final {
			t.Errorf("%+v is final: %t", tc.failure, got)
		}
	}
}

// TestTwoLossesInOneInstance checks that an instance of which two nodes are lost does not start with one
// spare, which is left for another instance.
func TestTwoLossesInOneInstance(t *testing.T) {
	spareRun(t, 6, 1, `
  - {name: store, nodes: 1, command: serve}
  - {name: pair, nodes: 4, nodes-per-instance: 2, command: serve, restarts: 3, require: {start: all, run: 1}}
`, func(r *run) {
		r.openGate()
		r.kill(1, 2, 3)
		for _, node := range []int{1, 2, 3} {
			r.lose(false, node)
		}
		r.sleep(time.Minute)
		r.wantStatuses(roles.StatusReady, roles.StatusLost, roles.StatusReady)
	})
}

// isWrite reports whether a call may change the share.
func isWrite(op signal.Op) bool {
	return op == signal.OpOpen || op == signal.OpWrite || op == signal.OpRename || op == signal.OpLink
}

// TestSpareIsLostWhileItTakesAPlace checks that the next spare takes a place if the one before is lost
// while the plan in which it has the place is written.
func TestSpareIsLostWhileItTakesAPlace(t *testing.T) {
	for spares, want := range map[int]roles.InstanceStatus{1: roles.StatusLost, 2: roles.StatusReady} {
		t.Run(fmt.Sprint(spares), func(t *testing.T) {
			spareRun(t, 2+spares, spares, `
  - {name: store, nodes: 1, command: serve}
  - {name: single, nodes: 1, command: serve, restarts: 1, require: {start: all, run: 0}}
`, func(r *run) {
				r.openGate()
				r.kill(1, 2)
				dead := r.fault
				r.setFault(func(op signal.Op, path string) error {
					if op == signal.OpRename && strings.HasSuffix(path, "/"+signal.SeriesPlan.Name(1)) {
						time.Sleep(10 * time.Second)
					}
					return dead(op, path)
				})
				for _, node := range []int{1, 2} {
					r.lose(false, node)
					time.Sleep(time.Second)
				}
				r.sleep(time.Minute)
				if got := r.statuses()[1]; got != want {
					t.Errorf("the instance is %s, want %s", got, want)
				}
				isOnN3 := func(one *startedChild) bool { return one.node == "n3" }
				if spares == 2 && !slices.ContainsFunc(r.tasks, isOnN3) {
					t.Errorf("the second spare has started nothing: %v", r.starts())
				}
			})
		})
	}
}

// TestOrdersAreWrittenLater checks that orders, plans and lists that cannot be written are written
// when the share takes them again.
func TestOrdersAreWrittenLater(t *testing.T) {
	spareRun(t, 4, 1, `
  - {name: prepare, nodes: head, command: prepare, oneshot: true}
  - {name: pair, nodes: 2, nodes-per-instance: 2, command: serve, restarts: {max: 1, backoff: 1s..1s}}
  - {name: late, nodes: head, command: serve, after: [prepare]}
  - {name: single, nodes: 1, command: serve, restarts: 1}
`, func(r *run) {
		r.openGate()
		r.later()
		r.kill(2)
		dead := r.fault
		r.setFault(func(op signal.Op, path string) error {
			if isWrite(op) && strings.Contains(path, "/"+signal.ControlDir+"/") {
				return os.ErrPermission
			}
			return dead(op, path)
		})
		r.exit("prepare.0.0.g0", 0)
		r.exit("pair.0.1.g0", 1)
		r.lose(false, 2)
		time.Sleep(20 * time.Second)
		r.want("starts", r.starts(), "pair.0.0.g0", "pair.0.1.g0", "prepare.0.0.g0", "single.0.0.g0")
		r.setFault(dead)
		time.Sleep(20 * time.Second)
		r.want("starts", r.starts(), "late.0.0.g0", "pair.0.0.g0", "pair.0.0.g1", "pair.0.1.g0", "pair.0.1.g1",
			"prepare.0.0.g0", "single.0.0.g0", "single.0.0.g1")
	})
}
