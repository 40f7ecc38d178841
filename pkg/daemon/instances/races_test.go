package instances

import (
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestStopBeforeStart checks that a node that sees the order to start a role only together with the
// order to stop an instance of it, of which another process has failed meanwhile, does not start that
// generation, and starts the next one when the head says so.
func TestStopBeforeStart(t *testing.T) {
	inBubble(t, 2, `
  - {name: prepare, nodes: head, command: prepare, oneshot: true, timeout: 1h}
  - {name: pair, nodes: 2, nodes-per-instance: 2, oneshot: true, command: copy, after: [prepare],
      restarts: {max: 1, backoff: 20s..20s}}
`, func(r *run) {
		late := r.nodes[1].ControlWatch
		late.SlowDown(time.Hour)
		time.Sleep(20 * time.Minute)
		r.exit("prepare.0.0.g0", 0)
		r.later()
		r.want("starts on the other node", r.starts(), "pair.0.0.g0", "prepare.0.0.g0")
		r.exit("pair.0.0.g0", 1)
		r.later()
		late.NotifyChange()
		r.later()
		r.want("starts before the back-off is over", r.starts(), "pair.0.0.g0", "prepare.0.0.g0")
		r.want("records", r.names(signal.NodesDir, "i0001"), "0000.i0001.g0.exited", "0000.i0001.g0.ready",
			"0001.i0001.g0.stopped")
		r.sleep(20 * time.Second)
		late.NotifyChange()
		r.later()
		r.want("starts", r.starts(), "pair.0.0.g0", "pair.0.0.g1", "pair.0.1.g1", "prepare.0.0.g0")
	})
}

// TestEndedChildrenAreForgotten checks that a node knows only the processes that run, however often
// they were started.
func TestEndedChildrenAreForgotten(t *testing.T) {
	inBubble(t, 2, `
  - {name: server, nodes: 1, command: serve, restarts: {max: 9}}
  - {name: setup, nodes: head, oneshot: true, command: prepare}
  - {name: engine, nodes: all, nodes-per-instance: 2, command: serve, restarts: {max: 9}}
`, func(r *run) {
		r.exit("setup.0.0.g0", 0)
		for _, generation := range []string{"g0", "g1", "g2"} {
			r.exit("server.0.0."+generation, 1)
			r.exit("engine.0.1."+generation, 1)
			r.later()
			r.later()
		}
		for node, want := range []int{2, 1} {
			if got := r.nodes[node].children.Count(); got != want {
				t.Errorf("node %d has %d children, want %d", node, got, want)
			}
		}
	})
}

// TestHangOfOlderGeneration checks that a generation that has begun while it was found out why the
// one before hangs is not ended in its place, and that its own hang is.
func TestHangOfOlderGeneration(t *testing.T) {
	inBubbleOf(t, func(r *run) { r.onDiagnosis = func() { time.Sleep(30 * time.Second) } }, 2, `
  - name: trainer
    nodes: 2
    ranks-per-node: 1
    primary: true
    command: train
    hang-timeout: 1m
    restarts: 9
`, func(r *run) {
		r.sleep(70 * time.Second) // it hangs, and is diagnosed
		r.exit("trainer.0.0.g0", 3)
		r.sleep(10 * time.Second)
		r.work(true, "trainer.0.0.g1", "trainer.0.1.g1")
		r.sleep(10 * time.Minute)
		r.want("orders", r.names(signal.ControlDir, "hang"))
		r.want("starts", r.starts(),
			"trainer.0.0.g0", "trainer.0.0.g1", "trainer.0.1.g0", "trainer.0.1.g1")
		r.work(false, "trainer.0.0.g1", "trainer.0.1.g1")
		r.sleep(2 * time.Minute)
		if !slices.Contains(r.starts(), "trainer.0.0.g2") || r.cause() != nil {
			t.Errorf("the next generation hangs: %v, %v", r.starts(), r.cause())
		}
	})
}

// TestHangIsDecidedAgain checks that an instance that hangs is ended when the share takes records
// again, if the record about that could not be written.
func TestHangIsDecidedAgain(t *testing.T) {
	inBubble(t, 1, `
  - {name: trainer, nodes: 1, primary: true, command: train, hang-timeout: 1m, restarts: 1}
`, func(r *run) {
		var tries atomic.Int32
		r.setFault(func(op signal.Op, path string) error {
			if op == signal.OpRename && strings.Contains(path, ".hang-") {
				tries.Add(1)
				return syscall.ENOSPC
			}
			return nil
		})
		r.sleep(3 * time.Minute)
		r.want("starts", r.starts(), "trainer.0.0.g0")
		if tries.Load() == 0 {
			t.Fatal("no record was tried")
		}
		r.setFault(nil)
		r.sleep(time.Minute)
		r.want("starts", r.starts(), "trainer.0.0.g0", "trainer.0.0.g1")
	})
}

// TestExitIsReadAgain checks that an exit whose record cannot be read for a while, because the
// share does not respond, has its consequences when it does.
func TestExitIsReadAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		keys   string
		starts []string
	}{
		"it is started again": {"restarts: 1", []string{
			"engine.0.0.g0", "engine.0.0.g1", "engine.0.1.g0", "engine.0.1.g1",
		}},
		"it is the cause": {"restarts: 0", []string{"engine.0.0.g0", "engine.0.1.g0"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, `
  - {name: engine, nodes: 2, nodes-per-instance: 2, command: serve, `+tc.keys+`}
`, func(r *run) {
				var answers atomic.Bool
				r.setFault(func(op signal.Op, path string) error {
					if op == signal.OpRead && strings.HasSuffix(path, ".exited") {
						for !answers.Load() {
							time.Sleep(time.Second)
						}
					}
					return nil
				})
				r.exit("engine.0.1.g0", 3)
				r.sleep(5 * recordReadTimeout)
				r.want("starts", r.starts(), "engine.0.0.g0", "engine.0.1.g0")
				r.goesOn()
				answers.Store(true)
				r.sleep(time.Minute)
				r.want("starts", r.starts(), tc.starts...)
				isCause := r.cause() != nil && r.cause().Child == "engine.0.1" && r.cause().Code == 3
				if wanted := len(tc.starts) == 2; isCause != wanted {
					t.Errorf("the cause is %+v", r.cause())
				}
			})
		})
	}
}
