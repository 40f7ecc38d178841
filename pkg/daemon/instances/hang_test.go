package instances

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestHang checks that an instance of which no process shows a sign of activity is ended and started
// again, and that a second hang is the cause of the end of the run. Another instance, of which one
// process works, is not ended.
func TestHang(t *testing.T) {
	inBubble(t, 2, `
  - {name: trainer, nodes: 2, nodes-per-instance: 1, ranks-per-node: 2, primary: true, command: train,
      hang-timeout: 1m, restarts: 1}
`, func(r *run) {
		r.work(true, "trainer.1.1.g0")
		r.sleep(50 * time.Second)
		r.want("early orders", r.names(signal.ControlDir, "hang"))
		r.sleep(40 * time.Second)
		r.want("orders", r.names(signal.ControlDir, "hang"), "inst.0000.g0.hang-0")
		r.want("idle times", r.names(signal.NodesDir, "idle"), "0000.i0000.g0.idle.000001")
		r.want("starts", r.starts(), "trainer.0.0.g0", "trainer.0.0.g1", "trainer.0.1.g0", "trainer.0.1.g1",
			"trainer.1.0.g0", "trainer.1.1.g0")
		exit := new(record.InstanceExit)
		if err := r.dir.ReadRecord(r.t.Context(), signal.NodesDir, "0000.i0000.g0.exited", exit); err != nil {
			t.Fatal(err)
		}
		if exit.Kind != health.DeadlinePassed || exit.Message != "trainer.0 hangs for 1m0s" || !exit.WillRestart {
			t.Errorf("the exit is %+v", exit)
		}
		r.goesOn()
		r.sleep(2 * time.Minute)
		r.wantCause(record.Failure{Kind: health.DeadlinePassed},
			"trainer.0 hangs for 1m0s; it had been started again once")
	})
}

// TestHangThatIsOver checks that an instance that goes on while it is inspected is not ended, and that
// a later hang of it is.
func TestHangThatIsOver(t *testing.T) {
	inBubble(t, 1, `
  - {name: trainer, nodes: 1, ranks-per-node: 1, primary: true, command: train, hang-timeout: 1m, restarts: 1}
`, func(r *run) {
		r.onDiagnosis = func() {
			r.print("trainer.0.0.g0", "a line")
			time.Sleep(20 * time.Second)
			r.onDiagnosis = nil
		}
		r.sleep(100 * time.Second)
		r.want("orders", r.names(signal.ControlDir, "hang"))
		if r.onDiagnosis != nil {
			t.Error("nothing was inspected")
		}
		r.sleep(time.Minute)
		r.want("orders", r.names(signal.ControlDir, "hang"), "inst.0000.g0.hang-0")
	})
}

// TestHangBySteps checks that an instance whose ranks work hangs without new steps. Nodes without steps
// do not matter, and a program without a step so far is not ended.
func TestHangBySteps(t *testing.T) {
	inBubble(t, 2, `
  - {name: trainer, nodes: 2, ranks-per-node: 1, primary: true, command: train, hang-timeout: 1m}
`, func(r *run) {
		r.work(true, "trainer.0.0.g0", "trainer.0.1.g0")
		r.sleep(10 * time.Minute)
		for _, step := range []string{"step 1", "step 2", "step 3", "step 4"} {
			r.print("trainer.0.1.g0", step)
			r.sleep(10 * time.Second)
		}
		r.want("early orders", r.names(signal.ControlDir, "hang"))
		r.sleep(90 * time.Second)
		r.want("orders", r.names(signal.ControlDir, "hang"), "inst.0000.g0.hang-1")
		if cause := r.wantCause(record.Failure{Kind: health.DeadlinePassed}); cause.NodeIndex != 1 {
			t.Errorf("it was on node %d", cause.NodeIndex)
		}
	})
}

// TestUnreadableHang checks that an instance that hangs is ended although its node cannot read why.
func TestUnreadableHang(t *testing.T) {
	inBubble(t, 1, `
  - {name: trainer, nodes: 1, primary: true, command: train, hang-timeout: 1m}
`, func(r *run) {
		r.setFault(func(op signal.Op, path string) error {
			if op == signal.OpRead && strings.HasSuffix(path, "/"+signal.OrderName(0, 0, signal.OrderHang(0))) {
				return os.ErrPermission
			}
			return nil
		})
		r.sleep(2 * time.Minute)
		r.wantCause(record.Failure{Kind: health.DeadlinePassed}, "trainer.0 hangs")
	})
}

// sleep waits for a time, and until everything that follows has happened.
func (r *run) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
