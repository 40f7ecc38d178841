package faults

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/hostile"
	"github.com/bringupd/bringupd/test/jobtest"
)

// TestEvicted makes the mount of one node hang, and then refuse the calls that hung, like the mount
// of a client that its server has evicted, while the peer links work and the share is polled
// rarely. After a poll that hung, the daemon must not wait for the same time again before the next
// one: the node's mount would be unusable for longer than the peer timeout.
func TestEvicted(t *testing.T) {
	const peer, hang = 10 * time.Second, 4500 * time.Millisecond
	t.Parallel()
	j := newJob(t, func(int) hostile.Knobs { return hostile.Knobs{} })
	for _, p := range phases {
		if p != driver {
			j.free(p)
		}
	}
	j.extra = []string{"--lifeline=on", "--peer-timeout=" + peer.String()}
	j.start(0)
	j.await(driver)
	j.endTurn()
	j.relaxed(victim, peer)

	mount := j.mounts[victim]
	j.must(mount.Stall(hostile.Held))
	asked := j.ask(victim)
	j.taken(mount, func(calls int) bool { return calls > 0 })
	time.Sleep(hang)
	j.must(mount.Set(hostile.Knobs{IO: 1}))
	j.taken(mount, func(calls int) bool { return calls == 0 })
	j.must(mount.Set(hostile.Knobs{}))
	if out, err := asked(); err != nil {
		t.Errorf("what the node was asked meanwhile: %v: %s", err, out)
	}

	begin := time.Now()
	j.letGo()
	o := j.outcome(begin)
	j.endedWell(o, 0)
	j.nothingLeft()
}

// relaxed waits until a node polls rarely, because its peer link works and it only waits for the
// end of the run.
func (j *job) relaxed(node int, peer time.Duration) {
	j.t.Helper()
	events := filepath.Join(j.runDir(), signal.EventsDir, signal.EventsName("daemon", node, size))
	j.until("a worker with nothing to do", func() bool {
		said, _ := os.ReadFile(events)
		return strings.Contains(string(said), `"phase":"driver"`)
	})
	time.Sleep(peer / 4) // two heartbeats, either of which may change the polling interval
}

// ask runs a command on a node, by a request through the mount of another node. It returns a
// function that waits for the end of the command.
func (j *job) ask(node int) func() ([]byte, error) {
	ctx, cancel := context.WithTimeout(j.t.Context(), ceiling)
	j.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, jobtest.Bringupd, "exec", "--node="+strconv.Itoa(node),
		j.logDir(1), "--", "true")
	cmd.Env = j.environ(0)
	type answer struct {
		out []byte
		err error
	}
	answers := make(chan answer, 1)
	j.told.Go(func() {
		out, err := cmd.CombinedOutput()
		answers <- answer{out, err}
	})
	return func() ([]byte, error) {
		a := <-answers
		return a.out, a.err
	}
}

// taken waits until the number of active calls into a mount satisfies enough.
func (j *job) taken(mount *hostile.Mount, enough func(calls int) bool) {
	j.t.Helper()
	j.until("calls into "+mount.At(), func() bool {
		calls, err := mount.Taken()
		j.must(err)
		return enough(calls)
	})
}

// until waits for a condition.
func (j *job) until(what string, reached func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(ceiling); !reached(); time.Sleep(step) {
		if time.Now().After(deadline) {
			j.t.Fatalf("after %s there is no sign of %s", ceiling, what)
		}
	}
}
