package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// want compares lists of names.
func (r *run) want(what string, got []string, want ...string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestLossBeforeOthersStop checks that the exit of an instance that is lost is known while its other
// processes still have their grace period, and that no record follows when everything must stop.
func TestLossBeforeOthersStop(t *testing.T) {
	for name, keys := range map[string]string{
		"on one node":     "nodes: 1, ranks-per-node: 2, nodes-per-instance: 1",
		"on several ones": "nodes: 2, ranks-per-node: 1",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, `
  - {name: trainer, `+keys+`, primary: true, command: train, grace: 1h, env: {IGNORE_TERM: "1"}}
`, func(r *run) {
				r.exit("trainer.0.1.g0", 3)
				r.later() // far less than the grace period
				r.wantCause(record.Failure{Child: "trainer.0.1"})
				r.exit("trainer.0.0.g0", 0)
				for _, n := range r.nodes {
					n.StopAll(r.t.Context())
				}
				r.want("stopped", r.names(signal.NodesDir, "stopped"))
			})
		})
	}
}

// TestStopInOrder checks the order of an orderly end, and that nothing is awaited that does not run:
// an instance in its back-off, one that waits for another role, and one that is lost.
func TestStopInOrder(t *testing.T) {
	inBubble(t, 2, `
  - {name: store, nodes: head, command: serve}
  - {name: cache, nodes: head, after: [store], command: serve, restarts: {max: 3, backoff: 1h..1h, window: 10h}}
  - {name: engine, nodes: 2, nodes-per-instance: 2, after: [cache], command: serve, require: {start: all, run: 0}}
  - {name: pair, nodes: all, nodes-per-instance: 2, after: [cache], command: serve, restarts: {max: 3,
      backoff: 1h..1h, window: 10h}}
  - {name: setup, nodes: head, command: prepare, oneshot: true}
  - {name: late, nodes: head, after: [setup], command: serve}
`, func(r *run) {
		r.openGate()
		r.exit("cache.0.0.g0", 3)  // it is in its back-off
		r.exit("engine.0.1.g0", 3) // it is lost
		r.exit("pair.0.1.g0", 3)   // it is in the head's back-off
		r.later()
		r.goesOn()
		began := time.Now()
		r.nodes[0].CancelRun(&lifecycle.Outcome{Orderly: true})
		r.head.StopInOrder(r.t.Context(), false)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the end took %s: %v", took, r.logged.All())
		}
		r.later() // the head knows the last records before they are written
		// The engine and the pair are gone, and the cache and late do not start. All others than the engine and
		// the pair are on the head's node, whose orders need no record.
		r.want("orders", r.names(signal.ControlDir, "end."), "end.1")
		r.want("stopped", r.names(signal.NodesDir, "stopped"),
			"0000.i0000.g0.stopped", "0000.i0001.g1.stopped", "0000.i0002.g0.stopped", "0000.i0003.g0.stopped",
			"0000.i0004.g0.stopped", "0000.i0005.g0.stopped")
	})
}

// TestStoppedCode checks the code of primary roles that are stopped: their own if they ran, and
// otherwise that of a stop, unless they have ended.
func TestStoppedCode(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		before     func(r *run)
		code       int
	}{
		{"it waits for another role", `
  - {name: server, nodes: 1, command: serve, ready: {probe: "file:/never/there", timeout: 1h}}
  - {name: main, nodes: head, primary: true, command: work}`, func(*run) {}, 143},
		{"it runs, and must be killed", `
  - {name: main, nodes: 1, primary: true, command: work, grace: 1s, env: {IGNORE_TERM: "1"}}`, func(*run) {}, 137},
		{"its process of rank 0 has ended", `
  - {name: main, nodes: 1, ranks-per-node: 2, primary: true, command: work}`,
			func(r *run) { r.exit("main.0.0.g0", 0) }, 143},
		{"its first node has ended", `
  - {name: main, nodes: 2, ranks-per-node: 1, primary: true, command: work}`,
			func(r *run) { r.exit("main.0.0.g0", 0) }, 143},
		{"it is about to start again", `
  - {name: main, nodes: 1, primary: true, command: work, restarts: {max: 1, backoff: 1m..1m}}`,
			func(r *run) { r.exit("main.0.0.g0", 3) }, 143},
		{"it has ended", `
  - {name: main, nodes: 1, primary: true, command: work}
  - {name: server, nodes: 1, command: serve}`, func(r *run) { r.exit("main.0.0.g0", 0) }, 0},
		{"there is none", `
  - {name: server, nodes: 1, command: serve}`, func(*run) {}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, 2, tc.file, func(r *run) {
				tc.before(r)
				r.later()
				r.nodes[0].CancelRun(&lifecycle.Outcome{Orderly: true})
				r.head.StopInOrder(r.t.Context(), false)
				if code := r.head.StoppedCode(r.t.Context()); code != tc.code {
					t.Errorf("the code is %d, want %d", code, tc.code)
				}
			})
		})
	}
}

// TestSignalThatIsPassedOn checks that a primary role that dies of a signal that its node has passed
// on is not started again.
func TestSignalThatIsPassedOn(t *testing.T) {
	for _, keys := range []string{"nodes: 1", "nodes: 2, ranks-per-node: 1"} {
		t.Run(keys, func(t *testing.T) {
			inBubble(t, 2, `
  - {name: main, `+keys+`, primary: true, command: work, restarts: 3}
`, func(r *run) {
				before := r.starts()
				for _, n := range r.nodes {
					n.children.ForwardSignal(syscall.SIGHUP)
				}
				r.later()
				r.later()
				r.want("starts", r.starts(), before...)
				r.wantCause(record.Failure{Kind: health.Signalled})
			})
		})
	}
}

// TestEndAfterListening checks that the end of a primary process counts although its endpoint has been
// listed: an end has no number.
func TestEndAfterListening(t *testing.T) {
	inBubble(t, 1, `
  - {name: driver, nodes: 1, primary: true, command: drive}
`, func(r *run) {
		r.openGate()
		r.mark(record.InstanceMark{State: record.InstanceReady, Change: 1})
		r.later()
		r.exit("driver.0.0.g0", 0)
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		defer cancel()
		if _, err := r.head.AwaitPrimaries(ctx); err != nil {
			t.Errorf("the primary role has not ended: %v", err)
		}
	})
}

// TestStopInOrderGivesUp checks that the end goes on when a level does not stop.
func TestStopInOrderGivesUp(t *testing.T) {
	inBubble(t, 2, `
  - {name: store, nodes: 1, command: serve}
  - {name: server, nodes: 1, after: [store], command: serve, grace: 3s}
`, func(r *run) {
		r.nodes[1].freeze()
		began := time.Now()
		r.nodes[0].CancelRun(&lifecycle.Outcome{Orderly: true})
		r.head.StopInOrder(r.t.Context(), false)
		if took := time.Since(began); took < 3*time.Second || took > 3*time.Second+endSlack+time.Second {
			t.Errorf("the end took %s", took)
		}
		r.later() // the head knows the record before it is written
		r.want("stopped", r.names(signal.NodesDir, "stopped"), "0000.i0000.g0.stopped")
		if entries := r.logged.FilterMessage("not all instances have stopped in time").All(); len(entries) != 1 {
			t.Errorf("logged: %v", r.logged.All())
		}
	})
}

// TestCommonCause checks that the run ends when all instances of a role fail together twice, and
// that the first of these exits is the cause.
func TestCommonCause(t *testing.T) {
	inBubble(t, 2, `
  - {name: server, nodes: all, per-node: 2, command: serve, restarts: {max: 100, backoff: 2s..2s}}
`, func(r *run) {
		fail := func(generation string) {
			for i, name := range []string{"server.2.0", "server.0.0", "server.1.0", "server.3.0"} {
				r.exit(name+generation, 10+i)
				time.Sleep(100 * time.Millisecond)
			}
			r.later()
		}
		fail(".g0")
		r.goesOn()
		fail(".g1")
		r.wantCause(record.Failure{Child: "server.2", Code: 10}, "all 4 instances of role server have exited again")
	})
}

// TestOneshot checks that the roles after a oneshot role start when it is done, and that a failure of
// it is repeated although it was never ready.
func TestOneshot(t *testing.T) {
	inBubble(t, 2, `
  - {name: setup, nodes: all, oneshot: true, command: prepare, restarts: {max: 1, backoff: 1s..1s}}
  - {name: server, nodes: head, after: [setup], command: serve}
`, func(r *run) {
		r.exit("setup.0.0.g0", 0)
		r.exit("setup.1.0.g0", 9)
		r.later()
		r.want("starts", r.starts(), "setup.0.0.g0", "setup.1.0.g0", "setup.1.0.g1")
		r.exit("setup.1.0.g1", 0)
		r.later()
		r.want("starts", r.starts(), "server.0.0.g0", "setup.0.0.g0", "setup.1.0.g0", "setup.1.0.g1")
		r.want("starts of roles", r.names(signal.ControlDir, "start."), "start.server")
	})
}

// TestOneshotTimeout checks that a process of a oneshot role that does not end is ended and started
// again, as one that has failed, and that the cause names its role, node and time.
func TestOneshotTimeout(t *testing.T) {
	inBubble(t, 2, `
  - {name: setup, nodes: all, oneshot: true, timeout: 1m, command: prepare, restarts: {max: 1, backoff: 1s..1s}}
  - {name: server, nodes: head, after: [setup], command: serve}
`, func(r *run) {
		r.exit("setup.0.0.g0", 0)
		time.Sleep(time.Minute)
		r.want("starts", r.starts(), "setup.0.0.g0", "setup.1.0.g0", "setup.1.0.g1")
		r.goesOn()
		time.Sleep(time.Minute)
		r.later()
		r.wantCause(record.Failure{}, "the setup.1 of n1 had not ended after 1m0s; it had been started again once "+
			"within 10m")
		r.want("starts", r.starts(), "setup.0.0.g0", "setup.1.0.g0", "setup.1.0.g1")
	})
}

// TestStopOfUnreadyProcess checks that a process that does not become ready is ended as its role says.
func TestStopOfUnreadyProcess(t *testing.T) {
	inBubble(t, 1, `
  - {name: server, nodes: 1, command: serve, ready: {probe: "file:/never/there", timeout: 20s},
      stop-signal: none, grace: 10s}
`, func(r *run) {
		time.Sleep(20 * time.Second)
		r.want("exits within the grace period", r.names(signal.NodesDir, "exited"))
		time.Sleep(10 * time.Second)
		r.want("exits", r.names(signal.NodesDir, "exited"), "0000.i0000.g0.exited")
		r.wantCause(record.Failure{}, "the server.0 of n0 was not ready within 20s")
	})
}

// TestAlive checks that an instance whose alive probe fails for too long is stopped and started
// again, although it then ends with 0, and that an endpoint is withdrawn while its probe fails.
func TestAlive(t *testing.T) {
	s := newSwitches(t)
	s.set("alive", true)
	s.set("ready", true)
	inBubble(t, 1, `
  - name: server
    nodes: 1
    command: serve
    restarts: 1
    ready: file:`+s.dir+`/ready
    alive: {probe: "file:`+s.dir+`/alive", after: 20s}
`, func(r *run) {
		r.openGate()
		r.later()
		file := filepath.Join(r.nodes[0].environment.endpointsDir, "server")
		if got := r.read(file); got != "10.0.0.1:20000\n" {
			t.Errorf("the endpoints are %q", got)
		}
		// Not ready for a while.
		s.set("ready", false)
		time.Sleep(12 * time.Second)
		if got := r.read(file); got != "" {
			t.Errorf("the endpoints are %q although the probe fails", got)
		}
		s.set("ready", true)
		time.Sleep(12 * time.Second)
		if got := r.read(file); got != "10.0.0.1:20000\n" {
			t.Errorf("the endpoints are %q although the probe succeeds again", got)
		}
		r.want("records", r.names(signal.NodesDir, "i0000"), "0000.i0000.g0.ready", "0000.i0000.g0.ready.000002",
			"0000.i0000.g0.unready.000001")
		// It fails for less than its limit, and then for longer.
		s.set("alive", false)
		time.Sleep(15 * time.Second)
		s.set("alive", true)
		time.Sleep(15 * time.Second)
		r.want("starts", r.starts(), "server.0.0.g0")
		s.set("alive", false)
		time.Sleep(27 * time.Second)
		s.set("alive", true)
		r.later()
		r.want("starts", r.starts(), "server.0.0.g0", "server.0.0.g1")
	})
}

// TestReadyBeforeTheGate checks that an instance that was ready stays so until the gate opens, although
// its probe fails meanwhile, and that it is withdrawn after that.
func TestReadyBeforeTheGate(t *testing.T) {
	s := newSwitches(t)
	s.set("ready", true)
	inBubble(t, 1, `
  - {name: server, nodes: 1, command: serve, ready: "file:`+s.dir+`/ready"}
  - {name: slow, nodes: all, command: load, ready: "file:`+s.dir+`/loaded"}
`, func(r *run) {
		s.set("ready", false)
		time.Sleep(10 * time.Minute)
		r.want("records", r.names(signal.NodesDir, "i0000"), "0000.i0000.g0.ready")
		s.set("loaded", true)
		time.Sleep(time.Minute)
		r.want("records", r.names(signal.NodesDir, "i0000"), "0000.i0000.g0.ready",
			"0000.i0000.g0.unready.000001")
	})
}

// TestHangOfPrimary checks that a primary process that hangs has failed soon after its limit, although
// it ends with 0 when it is told to stop, and that the cause has what it printed then.
func TestHangOfPrimary(t *testing.T) {
	inBubble(t, 1, `
  - {name: driver, nodes: 1, primary: true, command: drive, alive: {probe: "file:/nothing/there",
      after: 8s}, env: {LAST_LINE: "where it was"}}
`, func(r *run) {
		r.sleep(4 * time.Second)
		r.goesOn()
		r.sleep(3 * time.Second)
		lines := r.wantCause(record.Failure{Child: "driver.0"}, "hangs").Lines
		if !slices.Contains(lines, "where it was") {
			t.Errorf("the last lines are %q", lines)
		}
	})
}

// newestLive returns the number of the newest list of ready instances, or -1.
func (r *run) newestLive() (newest int) {
	newest = -1
	for _, name := range r.names(signal.ControlDir, "live.") {
		if number, err := strconv.Atoi(strings.TrimPrefix(name, "live.")); err == nil {
			newest = max(newest, number)
		}
	}
	return newest
}

// TestListsOfNodesThatWait checks that before the gate a node reads lists while one of its instances is
// not ready, or has not ended if it is a oneshot, and none that it does not need.
func TestListsOfNodesThatWait(t *testing.T) {
	s := newSwitches(t)
	s.set("1", true) // the router of node 1 is ready at once
	inBubble(t, 3, `
  - {name: server, nodes: head, command: serve, ready: "file:`+s.dir+`/server", ports: {http: auto}}
  - {name: router, nodes: all, command: route, ready: "file:`+s.dir+`/$BRINGUPD_ROLE_INDEX"}
  - {name: setup, nodes: all, command: prepare, oneshot: true}
`, func(r *run) {
		r.exit("setup.0.0.g0", 0)
		r.exit("setup.1.0.g0", 0)
		s.set("2", true) // that of node 2, too, but not its setup
		r.later()
		s.set("server", true)
		r.sleep(time.Minute)
		for node, want := range []string{"10.0.0.1:20000\n", "", "10.0.0.1:20000\n"} {
			if got := r.read(filepath.Join(r.nodes[node].environment.endpointsDir, "server")); got != want {
				t.Errorf("the endpoints are %q on node %d, want %q", got, node, want)
			}
		}
	})
}

// TestLiveLists checks that the head publishes lists of ready instances at most once a second after
// the gate, except the first ones, that at most two of them are left, and that the last one is right.
func TestLiveLists(t *testing.T) {
	inBubble(t, 2, `
  - {name: server, nodes: all, per-node: 8, command: serve, restarts: {max: 100, backoff: 300ms..300ms}}
`, func(r *run) {
		before := r.newestLive()
		r.openGate()
		r.later()
		began := time.Now()
		for generation := range 20 {
			r.exit(fmt.Sprintf("server.%d.0.g%d", generation%3, generation/3), 1)
			time.Sleep(400 * time.Millisecond)
		}
		most := int(time.Since(began)/time.Second) + 8
		lists := r.newestLive() - before
		if left := r.names(signal.ControlDir, "live."); len(left) > 2 {
			t.Errorf("the lists %v are left", left)
		}
		if lists > most || lists < 2 {
			t.Errorf("%d lists in %s, want at most %d", lists, time.Since(began), most)
		}
		r.later()
		file := r.read(filepath.Join(r.nodes[1].environment.endpointsDir, "server"))
		if got := strings.Count(file, "\n"); got != 16 {
			t.Errorf("%d endpoints are ready", got)
		}
	})
}

// TestLostStepMember checks that the loss of a daemon concerns the instances that it has started:
// those of its step on its node.
func TestLostStepMember(t *testing.T) {
	inBubble(t, 2, `
  - {name: judge, nodes: all, step: judge, command: serve, restarts: 3, require: {start: all, run: 1}}
  - {name: server, nodes: all, command: serve, require: {start: all, run: 1}}
`, func(r *run) {
		r.openGate()
		r.want("starts", r.starts(), "judge.0.0.g0", "judge.1.0.g0", "server.0.0.g0", "server.1.0.g0")
		r.want("names", r.names(signal.NodesDir, ".ready"), "0000.i0000.g0.ready", "0000.i0002.g0.ready",
			"0001.i0001.g0.ready", "0001.i0003.g0.ready")
		judgeOf1 := record.MemberIndex(1, 1, 2)
		r.lose(false, judgeOf1)
		r.wantStatuses(roles.StatusReady, roles.StatusLost, roles.StatusReady, roles.StatusReady)
		r.lose(false, 1)
		r.wantStatuses(roles.StatusReady, roles.StatusLost, roles.StatusReady, roles.StatusLost)
		if r.head.LoseNodes([]int{record.MemberIndex(0, 1, 2)}, false) {
			t.Error("the loss of the last judge was tolerated")
		}
	})
}

// TestLossWhileEnding checks that a daemon without instances is not the cause of the end of a run that
// was lost before its end and is noticed after it. One with instances may be.
func TestLossWhileEnding(t *testing.T) {
	inBubble(t, 3, "\n  - {name: server, nodes: 2, command: serve, require: {start: all, run: 1}}\n", func(r *run) {
		r.openGate()
		r.nodes[0].CancelRun(&lifecycle.Outcome{Code: 77})
		for node, want := range []bool{false, false, true} {
			if got := r.head.LoseNodes([]int{node}, false); got != want {
				t.Errorf("the loss of node %d is tolerated: %t, want %t", node, got, want)
			}
		}
	})
}

// TestAwaitSteps checks that the gate waits for the daemons of further steps, and names those that
// are missing.
func TestAwaitSteps(t *testing.T) {
	const file = `
  - {name: judge, nodes: all, step: judge, command: serve}
  - {name: eval, nodes: head, step: eval, command: serve}
  - {name: server, nodes: all, command: serve}
`
	join := func(r *run, members ...int) {
		for _, member := range members {
			name := r.dir.NodeName(member, record.StateJoined)
			if err := r.dir.WriteMark(r.t.Context(), signal.NodesDir, name); err != nil {
				r.t.Error(err)
			}
		}
	}
	for _, tc := range []struct {
		joined  []int
		missing string
	}{
		{[]int{0, 1, record.MemberIndex(0, 1, 2), record.MemberIndex(1, 2, 2)},
			"the daemons of step judge on n1 and the daemons of step eval on n0"},
		{[]int{record.MemberIndex(0, 2, 2)}, "the daemons of step judge on n[0-1]"},
	} {
		inBubble(t, 2, file, func(r *run) {
			join(r, tc.joined...)
			f := health.AsFailure(r.head.AwaitSteps(r.t.Context(), time.Minute))
			want := tc.missing + " did not join within 1m: "
			if f.Kind != health.DeadlinePassed || f.Phase != record.PhaseJoin || !strings.HasPrefix(f.Message, want) ||
				!strings.Contains(f.Message, " --step=judge ") {
				t.Errorf("got %+v, want %s", f, want)
			}
			for _, progress := range r.head.Progress() {
				for _, late := range progress.Late {
					number := 1 + slices.Index([]string{"judge", "eval"}, progress.Program.Step)
					isMissing := number > 0 && !slices.Contains(tc.joined, record.MemberIndex(late.Node, number, 2))
					if is := late.Last == progress.MissingStep(); is != isMissing {
						t.Errorf("%s waits for a daemon: %t, want %t", late.Name, is, isMissing)
					}
				}
			}
		})
	}
	inBubble(t, 2, file, func(r *run) {
		began := time.Now()
		go func() {
			time.Sleep(20 * time.Second)
			join(r, record.MemberIndex(0, 1, 2), record.MemberIndex(1, 1, 2), record.MemberIndex(0, 2, 2))
		}()
		err := r.head.AwaitSteps(r.t.Context(), time.Minute)
		if took := time.Since(began); err != nil || took < 20*time.Second || took > 25*time.Second {
			t.Errorf("got %v after %s", err, took)
		}
	})
}

// read returns the content of a file of a node.
func (r *run) read(path string) string {
	r.t.Helper()
	synctest.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestWorldsOfGenerations checks that the head has a world for the present generation of each
// instance that spans several nodes, with the nodes of that instance, and none for others.
func TestWorldsOfGenerations(t *testing.T) {
	inBubble(t, 4, `
  - {name: server, nodes: head, ranks-per-node: 2, command: serve}
  - {name: trainer, nodes: all, nodes-per-instance: 2, ranks-per-node: 1, primary: true, command: train, restarts: 1}
`, func(r *run) {
		// The nodes reach the worlds by their names.
		for key, want := range map[string]bool{"2.0": true, "2.5": false} {
			conn, err := r.worlds.LocalDialer(key, 2, r.nodes[0].Background)(r.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_, _ = conn.Read(make([]byte, 1))
			}()
			synctest.Wait()
			if isOpen := !ctxutil.AwaitDoneFor(closed, 0); isOpen != want {
				t.Errorf("the connection to world %s is open: %t", key, isOpen)
			}
			_ = conn.Close()
		}
		for key, nodes := range map[string][]int{"1.0": {0, 1}, "2.0": {2, 3}} {
			found, ok := r.head.findWorld(key)
			if !ok || !slices.Equal(found.Nodes(), nodes) {
				t.Fatalf("world %s: %v, with the nodes %v, want %v", key, ok, found.Nodes(), nodes)
			}
			if again, _ := r.head.findWorld(key); again.Head != found.Head {
				t.Errorf("world %s is created twice", key)
			}
		}
		for _, key := range []string{"", "1", "1.1", "3.0", "-1.0"} {
			if _, ok := r.head.findWorld(key); ok {
				t.Errorf("there is a world %q", key)
			}
		}
		r.exit("trainer.1.0.g0", 1)
		r.later()
		r.want("starts", r.starts(), "server.0.0.g0", "server.0.1.g0", "trainer.0.0.g0", "trainer.0.1.g0",
			"trainer.1.0.g0", "trainer.1.0.g1", "trainer.1.1.g0", "trainer.1.1.g1")
		_, before := r.head.findWorld("2.0")
		_, now := r.head.findWorld("2.1")
		_, other := r.head.findWorld("1.0")
		if before || !now || !other {
			t.Errorf("there are the worlds before %v, now %v, and of the other instance %v", before, now, other)
		}
	})
}

// TestRankFailures checks that the failure of a rank names it and its world, with the code of the
// rank for a primary role, and as the failure of a service otherwise.
func TestRankFailures(t *testing.T) {
	for primary, kind := range map[string]health.Kind{"true": health.RankFailed, "false": health.ServiceDied} {
		inBubble(t, 2, `
  - {name: trainer, nodes: all, ranks-per-node: 1, command: train, primary: `+primary+`}
`, func(r *run) {
			r.exit("trainer.0.1.g0", 3)
			r.later()
			cause := r.wantCause(record.Failure{Child: "trainer.0.1", Kind: kind},
				"rank 1 of trainer.0 (n1) failed: exit code 3")
			if *cause.WorldRank != (record.WorldRank{Number: 1, World: "trainer.0"}) || cause.NodeIndex != 1 {
				t.Errorf("the rank is %+v on node %d", cause.WorldRank, cause.NodeIndex)
			}
		})
	}
}

// TestLongestGrace checks that the grace period of a node is the longest of its own roles.
func TestLongestGrace(t *testing.T) {
	inBubbleOf(t, func(r *run) { r.spares = 1 }, 4, `
  - {name: store, nodes: 1, command: serve, grace: 20s}
  - {name: other, with: store, command: serve, grace: 5s}
  - {name: server, nodes: 1, command: serve, grace: 40s}
  - {name: client, nodes: 1, command: call, grace: 2s}
`, func(r *run) {
		for node, want := range []time.Duration{20 * time.Second, 40 * time.Second, 2 * time.Second, 0} {
			if got := r.nodes[node].LongestGrace(); got != want {
				t.Errorf("the grace period of node %d is %s, want %s", node, got, want)
			}
		}
	})
}

// TestRanksAreBound checks that ranks are bound to their GPUs, and that ranks without GPUs share the
// processors of a node on which no other role runs, but have none of its GPUs.
func TestRanksAreBound(t *testing.T) {
	node := affinity.Node{CPUs: affinity.IDSet{0, 1}}
	for i := range 2 {
		cpus := affinity.IDSet{i}
		node.Cores = append(node.Cores, affinity.Core{CPUs: cpus})
		node.GPUs = append(node.GPUs, affinity.GPU{Name: fmt.Sprintf("GPU-%d", i), Index: i, CPUs: cpus})
	}
	for _, tc := range []struct {
		name, keys, more string
		gpus             []string
		cpus             []affinity.IDSet
	}{
		{"with GPUs", ", gpus: 1", "", []string{"GPU-0", "GPU-1"}, []affinity.IDSet{{0}, {1}}},
		{"alone", ", gpus: 0", "", []string{affinity.HiddenGPUs, affinity.HiddenGPUs}, []affinity.IDSet{{0}, {1}}},
		{"beside another role", ", gpus: 0", "\n  - {name: other, with: trainer, command: serve}",
			[]string{affinity.HiddenGPUs, affinity.HiddenGPUs}, []affinity.IDSet{nil, nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubbleOf(t, func(r *run) { r.layout = node }, 2, `
  - {name: trainer, nodes: 1, ranks-per-node: 2`+tc.keys+`, primary: true, command: train}`+tc.more+`
  - {name: elsewhere, nodes: 1, command: serve}
`, func(r *run) {
				for rank := range tc.cpus {
					one := r.find(fmt.Sprintf("trainer.0.%d.g0", rank))
					var bound affinity.Affinity
					err := json.Unmarshal([]byte(one.env(affinity.EnvVariable)), &bound)
					visible := one.env("CUDA_VISIBLE_DEVICES")
					if err != nil || !slices.Equal(bound.CPUs, tc.cpus[rank]) || visible != tc.gpus[rank] {
						t.Errorf("rank %d is bound to %s (%v), with the GPUs %q", rank, bound, err, visible)
					}
				}
			})
		})
	}
}
